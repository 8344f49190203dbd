package mcp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// repeatEvery is how often the log says of one reason how many more requests of a
// session were refused for it.
const repeatEvery = time.Minute

// requests logs what programs reach for: refusals for the operator who wonders
// why something does not work, the rest for one who wants to see it. A host that is
// refused has no name here unless it is one of the operator's: any other is the
// program's own text, which its client is told.
//
// A program can be refused thousands of times a second. Of each reason the first
// refusal of a session is logged, the others are counted.
type requests struct {
	logger *slog.Logger
	// listed are the hosts that the operator has named.
	listed map[string]bool

	mu      sync.Mutex
	refused map[session]map[refusal]*tally // guarded by mu
}

// session is whom a refusal is counted for.
type session struct{ scope, threadID string }

// refusal is what is counted.
type refusal struct {
	reason string
	host   string // empty unless it is listed
}

// tally counts refusals that were not logged.
type tally struct {
	key   sandbox.Key // of the first
	count int
	since time.Time // when something was logged last
}

func newRequests(logger *slog.Logger, rules []sandbox.EgressRule) *requests {
	r := &requests{logger: logger, listed: map[string]bool{}, refused: map[session]map[refusal]*tally{}}
	for _, rule := range rules {
		r.listed[rule.Host.String()] = true
	}
	return r
}

// Observe implements router.Observer.
func (r *requests) Observe(event router.Event) {
	switch e := event.(type) {
	case router.EgressObserved:
		for _, d := range e.Decisions {
			if d.Allowed {
				r.log(slog.LevelInfo, made, e.Key, d.Reason, d.Host, slog.Bool("allowed", true), slog.Int("port", int(d.Port)), slog.Duration("duration", d.Duration))
			} else {
				r.refuse(e.Key, d)
			}
		}
	case router.ScopeDisposed:
		r.end(session{e.Scope, e.ThreadID})
	}
}

const (
	made = "a program made a request"
	more = "more requests of programs were refused"
)

func (r *requests) log(level slog.Level, message string, key sandbox.Key, reason, host string, attributes ...slog.Attr) {
	attributes = append([]slog.Attr{slog.String("key", key.String()), slog.String("reason", reason)}, attributes...)
	if host != "" {
		attributes = append(attributes, slog.String("host", host))
	}
	r.logger.LogAttrs(context.Background(), level, message, attributes...)
}

// refuse logs a refusal, or counts it.
func (r *requests) refuse(key sandbox.Key, d sandbox.EgressDecision) {
	what := refusal{reason: d.Reason}
	if r.listed[d.Host] {
		what.host = d.Host
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := session{key.Scope, key.ThreadID}
	t := r.refused[of][what]
	if t == nil {
		if r.refused[of] == nil {
			r.refused[of] = map[refusal]*tally{}
		}
		r.refused[of][what] = &tally{key: key, since: time.Now()}
		attributes := []slog.Attr{slog.Bool("allowed", false)}
		if d.Port != 0 {
			attributes = append(attributes, slog.Int("port", int(d.Port)))
		}
		r.log(slog.LevelWarn, made, key, what.reason, what.host, attributes...)
		return
	}
	if t.count++; time.Since(t.since) >= repeatEvery {
		r.say(what, t)
	}
}

// say logs how many refusals were counted. Precondition: mu is held.
func (r *requests) say(what refusal, t *tally) {
	r.log(slog.LevelWarn, more, t.key, what.reason, what.host, slog.Int("count", t.count))
	t.count, t.since = 0, time.Now()
}

// end says what was counted for a session whose sandboxes are gone, and forgets it.
func (r *requests) end(of session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, t := range r.refused[of] {
		if t.count > 0 {
			r.say(what, t)
		}
	}
	delete(r.refused, of)
}
