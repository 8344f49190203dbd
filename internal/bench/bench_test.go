package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, r := range []struct {
		in   []float64
		p    float64
		want float64
	}{
		{ten, 50, 5}, {ten, 95, 10}, {ten, 99, 10}, {ten, 90, 9}, {ten, 0, 1}, {ten, 100, 10}, {ten, 1, 1},
		{[]float64{7}, 50, 7}, {[]float64{1, 9}, 50, 1}, {[]float64{1, 9}, 51, 9},
	} {
		if got := Percentile(r.in, r.p); got != r.want {
			t.Errorf("Percentile(%v, %v) = %v, want %v", r.in, r.p, got, r.want)
		}
	}
	if !math.IsNaN(Percentile(nil, 50)) {
		t.Error("a percentile of nothing is a number")
	}
}

func TestSelectTakesAnIDOrAFamily(t *testing.T) {
	all := []Benchmark{{ID: "N1"}, {ID: "N2.reset"}, {ID: "N2.run"}, {ID: "N10"}}
	for _, r := range []struct {
		only string
		want []string
	}{
		{"", []string{"N1", "N2.reset", "N2.run", "N10"}},
		{"N1", []string{"N1"}}, {"n2", []string{"N2.reset", "N2.run"}}, {"N2.run", []string{"N2.run"}},
	} {
		got, err := Select(all, r.only)
		var ids []string
		for _, b := range got {
			ids = append(ids, b.ID)
		}
		if err != nil || !reflect.DeepEqual(ids, r.want) {
			t.Errorf("%q gives %v, %v; want %v", r.only, ids, err, r.want)
		}
	}
	if _, err := Select(all, "N"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "N2.reset") {
		t.Errorf("got %v", err)
	}
}

func sampling(s Samples, err error) func(context.Context, int) (Samples, error) {
	return func(context.Context, int) (Samples, error) {
		s.Values = slices.Clone(s.Values)
		return s, err
	}
}

func TestMeasureJudgesByBothTargets(t *testing.T) {
	values := Samples{Values: []float64{3, 1, 2, 10}}
	for _, r := range []struct {
		name   string
		target Target
		met    bool
	}{
		{"no promise", Target{}, true},
		{"median met", Target{P50: 2}, true},
		{"median missed", Target{P50: 1.9}, false},
		{"tail missed", Target{P50: 2, P99: 9}, false},
		{"tail alone met", Target{P99: 10}, true},
	} {
		got, err := Measure(t.Context(), Benchmark{ID: "x", Target: r.target, Run: sampling(values, nil)}, false)
		if err != nil || got.Met != r.met || got.P50 != 2 || got.P99 != 10 || got.N != 4 {
			t.Errorf("%s: got %+v, %v", r.name, got, err)
		}
	}
}

func TestMeasureComparesWithTheSameWorkDoneNatively(t *testing.T) {
	s := Samples{Values: []float64{105, 105}, Native: []float64{100, 100}, NativeName: "python3", NativeShare: 0.95}
	got, err := Measure(t.Context(), Benchmark{ID: "N7", Unit: Milliseconds, Run: sampling(s, nil)}, false)
	want := &Yardstick{Name: "python3", P50: 100, Ratio: 1.05}
	if err != nil || !got.Met || !reflect.DeepEqual(got.Yardstick, want) || math.Abs(got.Target.P50-105.26) > 0.01 {
		t.Errorf("got %+v, %+v, %v", got, got.Yardstick, err)
	}
}

func TestMeasureTakesTheNumberOfSamplesAskedFor(t *testing.T) {
	for quick, want := range map[bool]int{false: 100, true: 5} {
		b := Benchmark{N: 100, Quick: 5, Run: func(_ context.Context, n int) (Samples, error) {
			return Samples{Values: make([]float64, n)}, nil
		}}
		if got, err := Measure(t.Context(), b, quick); err != nil || got.N != want {
			t.Errorf("quick %v: %d samples, %v", quick, got.N, err)
		}
	}
}

func TestMeasureWithoutSamplesIsAnError(t *testing.T) {
	for _, err := range []error{errors.New("boom"), nil} {
		if _, got := Measure(t.Context(), Benchmark{Run: sampling(Samples{}, err)}, false); got == nil {
			t.Errorf("%v: no error", err)
		}
	}
}

func TestTheReportAsJSONHasItsUnitInTheKeys(t *testing.T) {
	r := Report{Results: []Result{
		{ID: "N1", Name: "warm", Unit: Milliseconds, N: 2, P50: 0.123456, P95: 1, P99: 2, Target: Target{P50: 0.15, P99: 1}, Yardstick: &Yardstick{"w", 0.16, 0.75}},
		{ID: "N5", Name: "memory", Unit: MiB, N: 1, P50: 1, P95: 1, P99: 1, Target: Target{P50: 2}, Met: true},
		{ID: "N8", Name: "overrun", Unit: Milliseconds, N: 1, P50: 1, P95: 1, P99: 1, Target: Target{P99: 25}, Met: true},
	}}
	got, err := json.Marshal(r.Results)
	const want = `[{"id":"N1","name":"warm","n":2,"p50_ms":0.1235,"p95_ms":1,"p99_ms":2,"target_ms":0.15,"target_on":"p50","target_p99_ms":1,"met":false,"yardstick":{"name":"w","p50_ms":0.16,"ratio":0.75}},` +
		`{"id":"N5","name":"memory","n":1,"p50_mib":1,"p95_mib":1,"p99_mib":1,"target_mib":2,"target_on":"p50","met":true,"yardstick":null},` +
		`{"id":"N8","name":"overrun","n":1,"p50_ms":1,"p95_ms":1,"p99_ms":1,"target_ms":25,"target_on":"p99","met":true,"yardstick":null}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestTheReportAsTableSaysWhatIsMet(t *testing.T) {
	r := Report{Machine: Machine{CPU: "C", Note: "in process"}, Results: []Result{
		{ID: "N1", Name: "warm", Unit: Milliseconds, N: 2, P50: 0.1234, P95: 12.34, P99: 123.4, Target: Target{P50: 0.15, P99: 1}, Yardstick: &Yardstick{"w", 0.16, 0.77}},
		{ID: "N2", Name: "reset", Unit: Milliseconds, N: 1, Met: true},
	}, Failures: []Failure{{ID: "N3", Name: "cold", Error: "no\nway"}, {ID: "N5", Name: "memory", Error: "skipped: root only", Skipped: true}}}
	if n := r.Failed(); n != 1 {
		t.Errorf("%d failed, want the one that was not skipped", n)
	}
	got := r.Table()
	for _, want := range []string{"in process\n", "N1  warm   0.123  12.3   123    2  p50 <= 0.150, p99 <= 1.000 ms  NO   w 0.160 ms (0.77x)\n", "yes  -\n", "not measured: N3 (cold): no way\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestRivalIsReadFromACommand(t *testing.T) {
	r, err := RunRival(t.Context(), `echo '{"name":"w","N1":{"p50_ms":0.16,"p99_ms":1}}'`)
	if err != nil || r.Name != "w" || r.Medians["N1"] != 0.16 {
		t.Fatalf("got %+v, %v", r, err)
	}
	results := []Result{{ID: "N1", Unit: Milliseconds, P50: 0.08}, {ID: "N2", Unit: Milliseconds, P50: 1}}
	r.Apply(results)
	if y := results[0].Yardstick; y == nil || y.Ratio != 0.5 || results[1].Yardstick != nil {
		t.Errorf("got %+v", results)
	}
}

func TestRivalThatFailsSaysWhy(t *testing.T) {
	for command, want := range map[string]string{
		"echo why >&2; exit 3":                   "why",
		"echo nonsense":                          "JSON",
		`echo '{"N1":{"p50_ms":1}}'`:             "no name",
		`echo '{"name":"w","N1":{}}'`:            `"N1"`,
		`echo '{"name":"w","N1":{"p50_ms":-1}}'`: `"N1"`,
	} {
		if _, err := RunRival(t.Context(), command); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
}

func FuzzDecodeRival(f *testing.F) {
	f.Add([]byte(`{"name":"w","N1":{"p50_ms":0.16}}`))
	f.Add([]byte(`{"name":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRival(b)
		if err == nil && r.Name == "" {
			t.Error("no name")
		}
		for id, v := range r.Medians {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%q has %v", id, v)
			}
		}
	})
}
