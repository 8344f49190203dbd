package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func runRules() []rule {
	rules := []rule{
		{name: "what a program prints comes back as it was written", probe: func(f *fixture) {
			s := f.acquire()
			for _, text := range []string{"one\ntwo\n", "\n\n", " no newline", "tabs\t and \r\n"} {
				f.output(s, f.p.Print(text), text)
			}
		}},
		{name: "standard error comes back apart from standard output", probe: func(f *fixture) {
			s := f.acquire()
			result := f.run(s, f.p.PrintError("oops"))
			if string(result.Stderr) != "oops" || len(result.Stdout) != 0 || result.ExitCode != 0 {
				f.t.Errorf("stderr %q, stdout %q, exit %d; want \"oops\", nothing, 0", result.Stderr, result.Stdout, result.ExitCode)
			}
		}},
		{name: "the exit code is the program's own", probe: func(f *fixture) {
			s := f.acquire()
			for _, code := range []int{3, 0, 1} {
				if result := f.run(s, f.p.Exit(code)); result.ExitCode != code {
					f.t.Errorf("exit %d came back as %d", code, result.ExitCode)
				}
			}
		}},
		{name: "a program that fails is a result, and the sandbox goes on", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			f.set(s, "before", "kept")
			result := f.run(s, f.p.Raise("quite wrong"))
			if result.ExitCode == 0 || !bytes.Contains(result.Stderr, []byte("quite wrong")) {
				f.t.Errorf("exit %d, stderr %q; want a failure that carries the message", result.ExitCode, result.Stderr)
			}
			f.has(s, "before", "kept")
			f.aftermath(s, id, nil)
		}},
		{name: "what a program stores is there for the next", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			f.set(s, "answer", "42")
			f.has(s, "answer", "42")
			f.set(s, "answer", "43")
			f.has(s, "answer", "43")
			if s.ID() != id {
				f.t.Errorf("running programs changed the id")
			}
		}},
		{name: "text beyond ASCII goes in and comes out unchanged", probe: func(f *fixture) {
			text := "Grüße, 世界 \U0001F600 e\u0301 \u202e\x00."
			f.output(f.acquire(), f.p.Print(text), text)
		}},
		{name: "output that is not UTF-8 comes back byte for byte", probe: func(f *fixture) {
			if f.p.PrintBytes == nil {
				f.t.Skipf("the harness has no program that prints bytes")
			}
			for _, data := range []string{"\xff\xfe", "cut \xe2\x82", "\xed\xa0\x80", "a\x80b"} {
				f.output(f.acquire(), f.p.PrintBytes([]byte(data)), data)
			}
		}},
		{name: "an empty program succeeds and prints nothing", probe: func(f *fixture) {
			result := f.run(f.acquire(), "")
			if result.ExitCode != 0 || len(result.Stdout)+len(result.Stderr) != 0 {
				f.t.Errorf("exit %d, stdout %q, stderr %q", result.ExitCode, result.Stdout, result.Stderr)
			}
		}},
		{name: "each result holds its own program's output only", probe: func(f *fixture) {
			s := f.acquire()
			for i := range 5 {
				f.output(s, f.p.Print(fmt.Sprint("run ", i)), fmt.Sprint("run ", i))
			}
			f.output(s, f.p.Set("quiet", "1"), "")
		}},
		{name: "code that is not UTF-8 is refused and costs nothing", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			_, err := f.tryRun(s, f.p.Set("ran", "yes")+"\n\xff\n", f.h.Patience)
			f.is("code that is not UTF-8", err, sandbox.ErrRefused)
			f.lacks(s, "ran")
			f.aftermath(s, id, err)
		}},
		{name: "a timeout below zero is refused and costs nothing", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			_, err := f.tryRun(s, f.p.Set("ran", "yes"), -time.Second)
			f.is("a timeout below zero", err, sandbox.ErrRefused)
			f.lacks(s, "ran")
			f.aftermath(s, id, err)
		}},
		{name: "no timeout means the default one", probe: func(f *fixture) {
			result, err := f.tryRun(f.acquire(), f.p.Print("fine"), 0)
			if err != nil || string(result.Stdout) != "fine" {
				f.t.Errorf("RunCode without a timeout = %q, %v", result.Stdout, err)
			}
		}},
	}
	return needing(needsRun, rules)
}

// needing adds capabilities to every rule.
func needing(needs sandbox.Capabilities, rules []rule) []rule {
	for i := range rules {
		rules[i].needs = rules[i].needs.Union(needs)
	}
	return rules
}

func resetRules() []rule {
	return needing(needsSnapshot, []rule{
		{name: "after a reset nothing is left of what ran", probe: func(f *fixture) {
			s := f.acquire()
			f.set(s, "old", "state")
			f.reset(s)
			f.lacks(s, "old")
		}},
		{name: "a reset gives a new id, and acquire knows it", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			f.reset(s)
			if s.ID() == id || s.ID() == "" {
				f.t.Fatalf("the id was %q and is %q", id, s.ID())
			}
			if again := f.acquire(); again.ID() != s.ID() {
				f.t.Fatalf("acquire gave %q, want the reset sandbox %q", again.ID(), s.ID())
			}
		}},
		{name: "resets can be repeated, and no id comes twice", probe: func(f *fixture) {
			s := f.acquire()
			ids := make(map[string]string)
			for i := range 5 {
				f.distinct(ids, fmt.Sprint("generation ", i), s)
				f.set(s, "generation", fmt.Sprint(i))
				f.has(s, "generation", fmt.Sprint(i))
				f.reset(s)
				f.lacks(s, "generation")
			}
		}},
		{name: "a reset touches no other sandbox", probe: func(f *fixture) {
			sibling := f.acquireAs(mainKey(), f.otherKind())
			id := sibling.ID()
			f.set(sibling, "mine", "kept")
			f.reset(f.acquire())
			f.has(sibling, "mine", "kept")
			if sibling.ID() != id {
				f.t.Errorf("the other sandbox has a new id")
			}
		}},
		{name: "a reset in a context that is over changes nothing", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			f.set(s, "old", "state")
			_, err := within(f, "Reset", func(ctx context.Context) (struct{}, error) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return struct{}{}, s.Reset(ctx)
			})
			f.is("Reset in a canceled context", err, sandbox.ErrCanceled, context.Canceled)
			if !sandbox.Usable(err) {
				f.t.Fatalf("error %v says that the sandbox is lost", err)
			}
			f.has(s, "old", "state")
			f.aftermath(s, id, err)
		}},
	})
}
