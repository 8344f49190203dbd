package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Report is everything a run of the benchmarks found.
type Report struct {
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
	// Failures are the benchmarks that could not be measured.
	Failures []Failure `json:"failures,omitempty"`
}

// Failed counts the benchmarks that were not skipped but went wrong.
func (r Report) Failed() int {
	n := 0
	for _, f := range r.Failures {
		if !f.Skipped {
			n++
		}
	}
	return n
}

// Failure is a benchmark that could not be measured.
type Failure struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Error string `json:"error"`
	// Skipped says that nothing is wrong: this machine or user lacks something.
	Skipped bool `json:"skipped,omitempty"`
}

// MarshalJSON writes r with its unit in the names of the keys: p50_ms, or
// p50_mib.
func (r Result) MarshalJSON() ([]byte, error) {
	unit := strings.ToLower(string(r.Unit))
	var b bytes.Buffer
	put := func(key string, v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		_, err = fmt.Fprintf(&b, "%q:%s", key, text)
		return err
	}
	type pair struct {
		key string
		v   any
	}
	target, on := r.Target.P50, "p50"
	if target == 0 {
		target, on = r.Target.P99, "p99"
	}
	pairs := []pair{
		{"id", r.ID}, {"name", r.Name}, {"n", r.N},
		{"p50_" + unit, round(r.P50)}, {"p95_" + unit, round(r.P95)}, {"p99_" + unit, round(r.P99)},
		{"target_" + unit, round(target)}, {"target_on", on},
	}
	if r.Target.P50 != 0 && r.Target.P99 != 0 {
		pairs = append(pairs, pair{"target_p99_" + unit, round(r.Target.P99)})
	}
	pairs = append(pairs, pair{"met", r.Met})
	var y any
	if r.Yardstick != nil {
		y = map[string]any{"name": r.Yardstick.Name, "p50_" + unit: round(r.Yardstick.P50), "ratio": round(r.Yardstick.Ratio)}
	}
	for _, p := range append(pairs, pair{"yardstick", y}) {
		if err := put(p.key, p.v); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// round keeps four decimals, which is a tenth of a microsecond in
// milliseconds: more is noise.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// Table gives r as a table for people.
func (r Report) Table() string {
	var b strings.Builder
	b.WriteString(r.Machine.text() + "\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		format := strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t") + "\n"
		_, _ = fmt.Fprintf(w, format, cells...) // into a builder
	}
	row("ID", "WHAT", "P50", "P95", "P99", "N", "TARGET", "MET", "YARDSTICK")
	for _, x := range r.Results {
		row(x.ID, x.Name, number(x.P50), number(x.P95), number(x.P99), x.N, x.Target.text(x.Unit), yesNo(x.Met), x.Yardstick.text(x.Unit))
	}
	_ = w.Flush() // into a builder
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "not measured: %s (%s): %s\n", f.ID, f.Name, streams.OneLine(f.Error))
	}
	return b.String()
}

func (t Target) text(u Unit) string {
	var parts []string
	if t.P50 != 0 {
		parts = append(parts, "p50 <= "+number(t.P50))
	}
	if t.P99 != 0 {
		parts = append(parts, "p99 <= "+number(t.P99))
	}
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ") + " " + string(u)
}

func (y *Yardstick) text(u Unit) string {
	if y == nil {
		return "-"
	}
	return fmt.Sprintf("%s %s %s (%.2fx)", y.Name, number(y.P50), u, y.Ratio)
}

// number gives v with three significant decimals where they matter.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
