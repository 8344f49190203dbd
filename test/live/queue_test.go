//go:build linux && amd64

package live

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// json is a text as JSON spells it.
func json(t *testing.T, text string) string {
	t.Helper()
	encoded, err := stdjson.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// letters is how often a client prints its letter: 10,000 times, and fewer where
// each line is slow.
func letters() int {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

func printing(letter string) string {
	return fmt.Sprintf("for _ in range(%d): print(%q)", letters(), letter)
}

// The collected case A5: two clients at once on one key, in every shape, each
// through a sandbox of its own acquiring and through the tool.
func TestClientsOfOneKeyNeverMix(t *testing.T) {
	b := newBackend(t, nil)
	s := acquire(t, b, conversation(1), listing())
	r := newRouter(t, b, router.Config{MinCleanup: sandbox.CleanupReset})
	tool := newTool(t, r, func(c *codeact.Config) { c.Allow = nil })
	ctx := in(t.Context(), "tools")
	ways := map[string]func(t *testing.T, code string) (string, error){
		"the backend": func(t *testing.T, code string) (string, error) {
			t.Helper()
			mine, err := b.Acquire(t.Context(), conversation(1), listing())
			if err != nil {
				return "", err
			}
			result, err := mine.RunCode(t.Context(), code, patience(60*time.Second))
			return result.StdoutText() + result.StderrText(), err
		},
		"the tool": func(_ *testing.T, code string) (string, error) {
			outcome, err := tool.Execute(ctx, code)
			return outcome.Stdout + outcome.Stderr + outcome.Message(), err
		},
	}
	for _, shape := range shapes {
		shape.prepare(t, s)
		switch shape.name {
		case "after a failure":
			if got := executes(t, ctx, tool, "1/0"); !strings.Contains(got, "ZeroDivisionError") {
				t.Errorf("a failure: %s", got)
			}
		case "after a reset":
			// The tool's sandbox has had one after every call.
		}
		for way, does := range ways {
			t.Run(shape.name+"/"+way, func(t *testing.T) {
				var clients sync.WaitGroup
				for _, letter := range []string{"a", "b"} {
					clients.Go(func() {
						got, err := does(t, printing(letter))
						if err != nil || got != strings.Repeat(letter+"\n", letters()) {
							t.Errorf("%s: %d bytes, other letters %t, %v", letter, len(got), strings.Trim(got, letter+"\n") != "", err)
						}
					})
				}
				clients.Wait()
			})
		}
	}
}

// The rest of A5: a wait in the queue that runs out says that nothing was
// submitted, and nothing was.
func TestAWaitThatRunsOutSubmitsNothing(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	s := acquire(t, b, conversation(1), listing(here))
	for _, shape := range shapes {
		shape.prepare(t, s)
		web.took()
		busy := make(chan error, 1)
		go func() {
			_, err := s.RunCode(t.Context(), "http_get('http://"+here+"/busy')\nwhile True: http_get('http://"+here+"/')", overrun(time.Second))
			busy <- err
		}()
		web.waits(t, "GET http://"+here+"/busy")
		_, err := s.RunCode(t.Context(), "submitted = 1", 20*time.Millisecond)
		if !errors.Is(err, sandbox.ErrQueuedTimeout) || !sandbox.Usable(err) || !strings.Contains(err.Error(), "nothing was submitted") {
			t.Errorf("%s: %v", shape.name, err)
		}
		if err := <-busy; !errors.Is(err, sandbox.ErrTimeout) || !sandbox.Usable(err) {
			t.Errorf("%s: the one ahead: %v", shape.name, err)
		}
		if got := prints(t, s, "print('submitted' in globals())"); got != "False\n" {
			t.Errorf("%s: it was submitted", shape.name)
		}
	}

	r := newRouter(t, b, router.Config{MinCleanup: sandbox.CleanupReset})
	slow := newTool(t, r, func(c *codeact.Config) { c.Timeout = overrun(time.Second) })
	hasty := newTool(t, r, func(c *codeact.Config) { c.Timeout = 20 * time.Millisecond })
	ctx := in(t.Context(), "tools")
	web.took()
	ahead := make(chan codeact.Outcome, 1)
	go func() {
		outcome, err := slow.Execute(ctx, "http_get('http://"+here+"/busy')\nwhile True: pass")
		if err != nil {
			t.Error(err)
		}
		ahead <- outcome
	}()
	web.waits(t, "GET http://"+here+"/busy")
	outcome, err := hasty.Execute(ctx, "print(1)")
	if err != nil || outcome.Failure != codeact.FailureQueued || !strings.Contains(outcome.Message(), "never started") {
		t.Errorf("%+v, %v", outcome, err)
	}
	if outcome := <-ahead; outcome.Failure != codeact.FailureTimeout {
		t.Errorf("the one ahead: %+v", outcome)
	}
}
