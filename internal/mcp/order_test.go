package mcp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// calls is one message a line: each word is a program, or "reset".
func calls(first int, words ...string) string {
	var lines []string
	for i, word := range words {
		params := fmt.Sprintf(`{"name":"execute_code","arguments":{"code":%q}}`, word)
		if word == "reset" {
			params = `{"name":"reset_sandbox"}`
		}
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, first+i, params))
	}
	return strings.Join(lines, "\n")
}

// served is what reached a backend, from the first program on.
func served(b *sandboxtest.Backend) (words []string) {
	for _, c := range b.Calls() {
		switch {
		case c.Op == sandboxtest.OpRunCode:
			words = append(words, c.Code)
		case c.Op == sandboxtest.OpReset && len(words) > 0:
			words = append(words, "reset")
		}
	}
	return words
}

func TestCallsThatAreSentTogetherAreServedInTheirOrder(t *testing.T) {
	const rounds, programs = 10, 28
	for name, keep := range map[string]bool{"with names that stay": true, "anew each time": false} {
		t.Run(name, func(t *testing.T) {
			b := memory()
			r := newRaw(t, serve(t, b, func(c *mcp.Config) { c.KeepState = keep }))
			r.says(initialize)
			r.send(initialized)
			var want []string
			for round := range rounds {
				var words []string
				for i := range programs {
					if i == programs/2 {
						words = append(words, "reset")
					}
					words = append(words, fmt.Sprintf(`set "x" "%d"`, len(want)+i))
				}
				r.send(calls(100*round+100, words...))
				for range words {
					if !r.lines.Scan() || !strings.Contains(r.lines.Text(), `"isError":false`) && strings.Contains(r.lines.Text(), `"isError"`) {
						t.Fatalf("got %q, %v", r.lines.Text(), r.lines.Err())
					}
				}
				want = append(want, words...)
			}
			got := served(b)
			if !keep { // there is one after each program, and none by itself
				got, want = without(got, "reset"), without(want, "reset")
			}
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("call %d was %s, want %s", i, got[i], want[i])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d calls were served, want %d", len(got), len(want))
			}
		})
	}
}

func without(words []string, word string) (rest []string) {
	for _, w := range words {
		if w != word {
			rest = append(rest, w)
		}
	}
	return rest
}

// Calls that never come for their turn keep nobody waiting.
func TestACallThatIsRefusedGivesItsPlaceUp(t *testing.T) {
	b := memory()
	r := newRaw(t, serve(t, b, nil))
	r.says(initialize)
	for range 3 {
		for _, refused := range []string{
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"no_such_tool"}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":7}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":7}}}`,
		} {
			if got := r.says(refused); !strings.Contains(got, `"error"`) && !strings.Contains(got, `"isError":true`) {
				t.Errorf("%s: got %s", refused, got)
			}
		}
	}
	if got := r.says(calls(2, `print "on"`)); !strings.Contains(got, `"stdout:\non"`) {
		t.Errorf("got %s", got)
	}
}

// An id that is in use gets no answer of its own, and its call no place.
func TestACallWithAnIDInUseKeepsNobodyWaiting(t *testing.T) {
	b := memory()
	gate := stuck(b)
	r := newRaw(t, serve(t, b, nil))
	r.says(initialize)
	r.send(calls(2, `print "first"`))
	<-gate.Entered()
	r.send(calls(2, `print "again"`))
	r.send(calls(3, `print "next"`))
	r.says(`{"jsonrpc":"2.0","id":4,"method":"ping"}`) // all of them have been read
	gate.Release()
	var answers string // which are written at the same time
	for range 2 {
		r.lines.Scan()
		answers += r.lines.Text()
	}
	if !strings.Contains(answers, `"stdout:\nfirst"`) || !strings.Contains(answers, `"stdout:\nnext"`) {
		t.Errorf("got %s", answers)
	}
}

// An id that is used again before its answer has been read may be free or in use.
func TestAnIDThatIsUsedAgainAndAgainKeepsNobodyWaiting(t *testing.T) {
	const rounds, again = 20, 200
	r := newRaw(t, serve(t, memory(), nil))
	r.says(initialize)
	own := make(chan string, rounds)
	go func() {
		for r.lines.Scan() {
			if strings.Contains(r.lines.Text(), `"id":10`) {
				own <- r.lines.Text()
			}
		}
	}()
	for round := range rounds {
		for range again {
			r.send(calls(2, "reset"))
		}
		r.send(calls(1000+round, "reset"))
		select {
		case <-own:
		case <-time.After(patience):
			t.Fatalf("round %d: a call of its own id is not answered", round)
		}
	}
}

func TestErrorsOfTheProtocolHaveCodes(t *testing.T) {
	b := memory()
	gate := stuck(b)
	defer gate.Release()
	r := newRaw(t, serve(t, b, nil))
	if got := r.says(calls(1, `print "early"`)); !strings.Contains(got, `"id":1,"error":{"code":-32603,`) {
		t.Errorf("before initialize: %s", got)
	}
	r.says(initialize)
	r.send(calls(2, "x", "reset"))
	<-gate.Entered()
	cancel := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	for _, id := range []string{"3", "2"} { // one that waits, and one that runs
		if got, want := r.says(cancel(id)), `"id":`+id+`,"error":{"code":-32800,`; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
