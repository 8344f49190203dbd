package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Unit is what a benchmark's samples are counted in.
type Unit string

// The units.
const (
	Milliseconds Unit = "ms"
	MiB          Unit = "MiB"
)

// Target is the value not to be exceeded. A zero field promises nothing.
type Target struct{ P50, P99 float64 }

// Benchmark is one number to measure.
type Benchmark struct {
	// ID is the promise it belongs to, such as "N1", with a variant after a
	// dot where there are several: "N2.reset".
	ID string
	// Name says what one sample is.
	Name string
	// Unit is what samples and target are counted in.
	Unit Unit
	// Target is the promise.
	Target Target
	// N is how many samples to take, Quick how many for a quick look.
	N, Quick int
	// Run takes n samples, or fewer with an error.
	Run func(ctx context.Context, n int) (Samples, error)
}

// Samples are what a benchmark measured.
type Samples struct {
	// Values are in the benchmark's unit, one a sample.
	Values []float64
	// Native, if any, are samples of the same work done by NativeName: the
	// yardstick that the benchmark brings itself. Its median divided by
	// NativeShare is then the target, unless that is stricter.
	Native      []float64
	NativeName  string
	NativeShare float64
}

// Result is a measured benchmark.
type Result struct {
	ID, Name      string
	Unit          Unit
	N             int
	P50, P95, P99 float64
	Target        Target
	Met           bool
	Yardstick     *Yardstick
}

// Yardstick is another product's median of the same work.
type Yardstick struct {
	Name string
	P50  float64
	// Ratio is our median divided by the yardstick's: below one is faster.
	Ratio float64
}

// ErrUnknown is returned for a benchmark that does not exist.
var ErrUnknown = errors.New("no such benchmark")

// ErrSkipped is what a benchmark returns for which this machine or user lacks
// something. That is no failure.
var ErrSkipped = errors.New("skipped")

// Select gives the benchmarks that only names: an ID, or the part of it before
// the dot. Empty names all.
func Select(all []Benchmark, only string) ([]Benchmark, error) {
	if only == "" {
		return all, nil
	}
	var picked []Benchmark
	var ids []string
	for _, b := range all {
		family, _, _ := strings.Cut(b.ID, ".")
		if strings.EqualFold(only, b.ID) || strings.EqualFold(only, family) {
			picked = append(picked, b)
		}
		ids = append(ids, b.ID)
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("%w %q; there are %s", ErrUnknown, only, strings.Join(ids, ", "))
	}
	return picked, nil
}

// Measure runs b and sums up. quick takes fewer samples.
func Measure(ctx context.Context, b Benchmark, quick bool) (Result, error) {
	n := b.N
	if quick {
		n = b.Quick
	}
	s, err := b.Run(ctx, n)
	if err != nil {
		return Result{}, err
	}
	if len(s.Values) == 0 {
		return Result{}, errors.New("no samples")
	}
	r := Result{ID: b.ID, Name: b.Name, Unit: b.Unit, N: len(s.Values), Target: b.Target}
	slices.Sort(s.Values)
	r.P50, r.P95, r.P99 = Percentile(s.Values, 50), Percentile(s.Values, 95), Percentile(s.Values, 99)
	if len(s.Native) > 0 {
		slices.Sort(s.Native)
		native := Percentile(s.Native, 50)
		relative := native / s.NativeShare
		if r.Target.P50 == 0 || relative < r.Target.P50 {
			r.Target.P50 = relative
		}
		r.Compare(s.NativeName, native)
	}
	r.Met = r.Target.met(r.P50, r.P99)
	return r, nil
}

// Compare sets the yardstick of r, in r's unit.
func (r *Result) Compare(name string, p50 float64) {
	if p50 > 0 {
		r.Yardstick = &Yardstick{Name: name, P50: p50, Ratio: r.P50 / p50}
	}
}

func (t Target) met(p50, p99 float64) bool {
	return (t.P50 == 0 || p50 <= t.P50) && (t.P99 == 0 || p99 <= t.P99)
}

// Percentile gives the value below or at which p percent of the sorted values
// lie (nearest rank). It is NaN without values.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// MS gives d in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
