package codeact_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestOfMuchOutputTheModelSeesTheBeginningAndTheEnd(t *testing.T) {
	r, err := router.New(router.Config{Backends: []sandbox.Backend{sandboxtest.New(sandboxtest.Config{})}, MinIsolation: sandbox.IsolationNone})
	if err != nil {
		t.Fatal(err)
	}
	const most = codeact.MinShown
	for _, c := range []struct {
		name, printed, shown string
		most                 int
	}{
		{"all by default", strings.Repeat("x", 1<<12), strings.Repeat("x", 1<<12), 0},
		{"what fits", strings.Repeat("x", most), strings.Repeat("x", most), most},
		{"one byte more", strings.Repeat("x", most) + "y", strings.Repeat("x", most/2) + "\n[1 bytes left out here]\n" + strings.Repeat("x", most/2-1) + "y", most},
		{"much", strings.Repeat("a", 1000) + strings.Repeat("b", 1000), strings.Repeat("a", most/2) + "\n[" + strconv.Itoa(2000-most) + " bytes left out here]\n" + strings.Repeat("b", most/2), most},
		{"an odd bound", strings.Repeat("a", 1000), strings.Repeat("a", 150) + "\n[701 bytes left out here]\n" + strings.Repeat("a", 149), 299},
		{"whole characters", "x" + strings.Repeat("€", 1000), "x" + strings.Repeat("€", 42) + "\n[2748 bytes left out here]\n" + strings.Repeat("€", 42), most},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool, err := codeact.NewTool(r, codeact.Config{
				AgentID: "a", MaxShown: c.most, Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} },
			})
			if err != nil {
				t.Fatal(err)
			}
			o, err := tool.Execute(t.Context(), "print "+strconv.Quote(c.printed))
			if err != nil {
				t.Fatal(err)
			}
			stdout, _, leftOut := o.Shown()
			if stdout != c.shown || !utf8.ValidString(stdout) || o.Report() != "stdout:\n"+c.shown {
				t.Errorf("shown %.400q, want %.400q", stdout, c.shown)
			}
			if marker := strings.Contains(c.shown, "["); marker != (leftOut > 0) || o.Stdout != c.printed {
				t.Errorf("%d bytes left out; the outcome has %d of %d bytes", leftOut, len(o.Stdout), len(c.printed))
			}
		})
	}
}
