package plan

import "testing"

func TestReportsSurviveTheirLine(t *testing.T) {
	for _, r := range []Report{
		{Kind: Start},
		{Kind: Start, N: 3},
		{Kind: End, N: 2, Status: 137},
		{Kind: Failed, Words: "no /dev/kvm: not found"},
		{Kind: Done},
	} {
		if got, ok := Parse([]byte(r.String())); !ok || got != r {
			t.Errorf("%+v came back as %+v, %v", r, got, ok)
		}
	}
}

func TestOtherLinesAreNoReports(t *testing.T) {
	for _, line := range []string{
		"", "done\n", "testvm done\n", prefix + "\n", prefix + "what\n", prefix + "start\n", prefix + "start x\n",
		prefix + "start -1\n", prefix + "start 1 2\n", prefix + "end 1\n", prefix + "end 1 99999999999999999999\n", prefix + "done 1\n",
	} {
		if r, ok := Parse([]byte(line)); ok {
			t.Errorf("%q is %+v", line, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(prefix + "start 1\n"))
	f.Add([]byte(prefix + "end 1 2\r\n"))
	f.Add([]byte(prefix + "failed why\n"))
	f.Add([]byte(prefix + "done\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := Parse(line)
		if !ok {
			return
		}
		if again, ok := Parse([]byte(r.String())); !ok || r.Kind != Failed && again != r {
			t.Errorf("%+v became %+v, %v", r, again, ok)
		}
	})
}
