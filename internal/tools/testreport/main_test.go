package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name, in, out string
		skipped       []string
		failed        bool
	}{
		{
			name: "a passing package is one line",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`,
			out: "ok  \tp\t0.1s\n",
		},
		{
			name: "a skipped test is named with its reason",
			in: `{"Action":"output","Package":"p","Test":"TestA/sub","Output":"=== RUN   TestA/sub\n"}
{"Action":"output","Package":"p","Test":"TestA/sub","Output":"    a_test.go:12: needs /dev/kvm: open: denied\n"}
{"Action":"output","Package":"p","Test":"TestA/sub","Output":"    --- SKIP: TestA/sub (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA/sub"}
`,
			skipped: []string{"p.TestA/sub: needs /dev/kvm: open: denied"},
		},
		{
			name:    "a test may skip without a reason",
			in:      `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n",
			skipped: []string{"p.TestA: no reason given"},
		},
		{
			name: "a package without tests is not a skipped test",
			in: `{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
{"Action":"skip","Package":"p"}
`,
			out: "?   \tp\t[no test files]\n",
		},
		{
			name: "a failed test prints its whole output",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`,
			out:    "=== RUN   TestA\n    a_test.go:3: wrong\nFAIL\tp\t0.1s\nFAIL\n",
			failed: true,
		},
		{
			name: "a package that does not compile fails with the compiler's words",
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"./a.go:1:1: syntax error\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p"}
`,
			out:    "./a.go:1:1: syntax error\nFAIL\tp [build failed]\n",
			failed: true,
		},
		{
			name:   "a stream that breaks off is a failure",
			in:     `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
			out:    "unfinished: p TestA\n=== RUN   TestA\n",
			failed: true,
		},
		{
			name: "lines that are not JSON pass through",
			in:   "go: something\n",
			out:  "go: something\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			skipped, err := report(strings.NewReader(tt.in), &out)
			if out.String() != tt.out {
				t.Errorf("printed %q, want %q", out.String(), tt.out)
			}
			if !slices.Equal(skipped, tt.skipped) {
				t.Errorf("skipped %q, want %q", skipped, tt.skipped)
			}
			if errors.Is(err, errFailed) != tt.failed {
				t.Errorf("error %v, want failure %v", err, tt.failed)
			}
		})
	}
}
