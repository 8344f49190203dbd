package control_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func having(ids ...string) *scripted {
	s := &scripted{}
	for _, id := range ids {
		s.records = append(s.records, record(id))
	}
	return s
}

func failing(s *scripted) *scripted {
	s.list = func(context.Context) error { return errSecret }
	return s
}

func silent(s *scripted) *scripted {
	s.list = untilEnd
	return s
}

// late hosts answer well, when their time is over.
func late(s *scripted) *scripted {
	s.list = func(ctx context.Context) error { <-ctx.Done(); return nil }
	return s
}

func composite(absent int, hosts ...*scripted) *control.Composite {
	var members []control.Member
	for i, host := range hosts {
		members = append(members, control.Member{SourceID: string(rune('a' + i)), Control: host})
	}
	var missing []*control.HostError
	for range absent {
		missing = append(missing, &control.HostError{SourceID: "absent", Message: "gone"})
	}
	return control.NewComposite(members, missing)
}

func TestADisposalNeedsExactlyOneOwnerAndAWordFromEveryHost(t *testing.T) {
	slow := func(s *scripted) *scripted {
		s.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
			return control.DisposalResult{Status: control.Disposed, InstanceID: id}, untilEnd(ctx)
		}
		return s
	}
	for _, tt := range []struct {
		name    string
		absent  int
		hosts   []*scripted
		timeout time.Duration
		want    string // status: message, or ErrDuplicate
		asked   int    // how many hosts were asked to dispose
	}{
		{"one owner", 0, []*scripted{having("x"), having("one")}, 0, "disposed: scripted disposal", 1},
		{"no owner", 0, []*scripted{having("x"), having()}, 0, "not_found: " + gone, 0},
		{"no host", 0, nil, 0, "not_found: " + gone, 0},
		{"two owners", 0, []*scripted{having("one"), having("one")}, 0, "duplicate", 0},
		{"two owners and a failure", 1, []*scripted{having("one"), having("one")}, 0, "duplicate", 0},
		{"one host with the id twice", 0, []*scripted{having("one", "one")}, 0, "disposed: scripted disposal", 1}, // the host's matter
		{"no owner, one host failed", 0, []*scripted{having(), failing(having("one"))}, 0, "failed: Sandbox owner could not be confirmed on 1 unavailable host(s).", 0},
		{"no owner, hosts absent", 2, []*scripted{having()}, 0, "failed: Sandbox owner could not be confirmed on 2 unavailable host(s).", 0},
		{"one owner, one host failed", 0, []*scripted{having("one"), failing(having())}, 0, "failed: Sandbox ownership could not be confirmed on 1 unavailable host(s).", 0},
		{"one owner, one host absent", 1, []*scripted{having("one")}, 0, "failed: Sandbox ownership could not be confirmed on 1 unavailable host(s).", 0},
		{"one owner, one host silent", 0, []*scripted{having("one"), silent(having())}, shortTime, "failed: Disposal timed out while locating the owning host.", 0},
		{"owner never answers", 0, []*scripted{slow(having("one")), having()}, shortTime, "failed: Disposal timed out while invoking the owning host.", 1},
		{"hardly any time", 0, []*scripted{late(having("one"))}, time.Nanosecond, "failed: Disposal timed out while locating the owning host.", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				result, err := composite(tt.absent, tt.hosts...).Dispose(context.Background(), "one", tt.timeout)
				if tt.want == "duplicate" {
					if !errors.Is(err, control.ErrDuplicate) || !strings.Contains(err.Error(), `instance id "one" is reported by several hosts`) {
						t.Errorf("Dispose = %+v, %v", result, err)
					}
				} else if got := string(result.Status) + ": " + result.Message; err != nil || got != tt.want || result.InstanceID != "one" {
					t.Errorf("Dispose = %q, %v\nwant %q", got, err, tt.want)
				}
				asked := 0
				for _, host := range tt.hosts {
					asked += len(host.taken())
				}
				if asked != tt.asked {
					t.Errorf("%d hosts were asked to dispose, want %d", asked, tt.asked)
				}
			})
		})
	}
}

// A host that catches the end of its time and then succeeds is not believed,
// and not waited for.
func TestALateDisposalIsNeverASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		settled := make(chan struct{})
		late := having("one")
		late.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
			defer close(settled)
			<-ctx.Done()
			<-release
			return control.DisposalResult{Status: control.Disposed, InstanceID: id, Message: "Sandbox disposed."}, nil
		}
		result, err := composite(0, late).Dispose(context.Background(), "one", shortTime)
		if err != nil || result.Status != control.DisposalFailed || !strings.Contains(result.Message, "timed out") {
			t.Errorf("Dispose = %+v, %v", result, err)
		}
		close(release)
		<-settled
	})
}

func TestAPurgeNeedsAWordFromEveryHost(t *testing.T) {
	purging := func(status control.PurgeStatus, err error) *scripted {
		return &scripted{purge: func(_ context.Context, scope, thread string) (control.PurgeResult, error) {
			return control.PurgeResult{Status: status, Scope: scope, ThreadID: thread, Disposed: 2}, err
		}}
	}
	silent := func() *scripted {
		return &scripted{purge: func(ctx context.Context, scope, thread string) (control.PurgeResult, error) {
			<-ctx.Done()
			return control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread, Disposed: 9}, nil
		}}
	}
	done, partial := func() *scripted { return purging(control.Purged, nil) }, func() *scripted { return purging(control.PurgePartial, nil) }
	for _, tt := range []struct {
		name     string
		absent   int
		hosts    []*scripted
		timeout  time.Duration
		status   control.PurgeStatus
		disposed int
		message  string
	}{
		{"two hosts", 0, []*scripted{done(), done()}, 0, control.Purged, 4, "Conversation purged across 2 host(s)."},
		{"no host", 0, nil, 0, control.PurgePartial, 0, "No responsive MAF host could confirm the purge."},
		{"absent hosts only", 2, nil, 0, control.PurgePartial, 0, "No responsive MAF host could confirm the purge."},
		{"one absent", 1, []*scripted{done()}, 0, control.PurgePartial, 2, "Conversation purge was incomplete on 1 host(s)."},
		{"one partial", 0, []*scripted{done(), partial()}, 0, control.PurgePartial, 4, "Conversation purge was incomplete on 1 host(s)."},
		{"one failed", 0, []*scripted{done(), purging(control.Purged, errSecret)}, 0, control.PurgePartial, 2, "Conversation purge was incomplete on 1 host(s)."},
		{"one silent", 0, []*scripted{done(), silent()}, shortTime, control.PurgePartial, 2, "Conversation purge timed out before 1 host(s) responded."},
		{"one silent, one partial, one absent", 1, []*scripted{partial(), silent()}, shortTime, control.PurgePartial, 2,
			"Conversation purge timed out before 1 host(s) responded; 2 other host failure(s) were reported."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				result, err := composite(tt.absent, tt.hosts...).Purge(context.Background(), "s", "t", tt.timeout)
				want := control.PurgeResult{Status: tt.status, Scope: "s", ThreadID: "t", Disposed: tt.disposed, Message: tt.message}
				if err != nil || result != want {
					t.Errorf("Purge = %+v, %v\nwant %+v", result, err, want)
				}
			})
		})
	}
}

func TestAnInventoryWithoutAHostSaysSoAndHasTheOthers(t *testing.T) {
	b, a := record("2"), record("1")
	b.SourceID, a.SourceID = "b", "a"
	c := composite(1, &scripted{records: []control.Record{b}}, failing(having("x")), &scripted{records: []control.Record{a}})
	records, err := c.List(context.Background())
	var partial *control.PartialError
	if !errors.As(err, &partial) || err.Error() != "inventory is incomplete on 2 host(s)" {
		t.Fatalf("List: %v", err)
	}
	if len(partial.Hosts) != 2 || partial.Hosts[0].SourceID != "absent" || partial.Hosts[1].SourceID != "b" || !errors.Is(err, errSecret) {
		t.Errorf("the failures are %+v", partial.Hosts)
	}
	if len(records) != 2 || records[0].InstanceID != "1" || records[1].InstanceID != "2" {
		t.Errorf("listed %+v", records)
	}
	if records, err := composite(0, having("z", "y")).List(context.Background()); err != nil || len(records) != 2 || records[0].InstanceID != "y" {
		t.Errorf("List: %+v, %v", records, err)
	}
}

func TestASandboxIsFoundThoughOtherHostsFailWhichIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name   string
		absent int
		hosts  []*scripted
		want   string
	}{
		{"found", 0, []*scripted{having(), having("one")}, "found"},
		{"found beside a failure", 0, []*scripted{failing(having()), having("one")}, "found, 1 failed"},
		{"found beside a failure and an absence", 1, []*scripted{failing(having()), having("one")}, "found, 2 failed"},
		{"absent everywhere", 0, []*scripted{having(), having("x")}, "absent"},
		{"no host", 0, nil, "absent"},
		{"absent, one failed", 0, []*scripted{having(), failing(having("one"))}, "absent, 1 failed"},
		{"absent, one host absent", 1, []*scripted{having()}, "absent, 1 failed"},
		{"on two hosts", 0, []*scripted{having("one"), having("one")}, "duplicate"},
		{"on two hosts, one failed", 0, []*scripted{having("one"), failing(having()), having("one")}, "duplicate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			record, found, err := composite(tt.absent, tt.hosts...).Get(context.Background(), "one")
			if found != (record.InstanceID == "one") {
				t.Errorf("found %v with %+v", found, record)
			}
			var partial *control.PartialError
			got := "absent"
			if found {
				got = "found"
			}
			switch {
			case errors.Is(err, control.ErrDuplicate):
				got = "duplicate"
			case errors.As(err, &partial):
				got += fmt.Sprintf(", %d failed", len(partial.Hosts))
			case err != nil:
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Get: %s, want %s", got, tt.want)
			}
		})
	}
}

func TestACallerThatGivesUpGetsItsOwnError(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := composite(0, having("one"))
	if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v", err)
	}
	if _, _, err := c.Get(ctx, "two"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
	if _, err := c.Dispose(ctx, "one", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Dispose: %v", err)
	}
	if _, err := c.Purge(ctx, "s", "t", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Purge: %v", err)
	}
}

// What a host counts is its own claim: added up it must stay a number.
func TestACountThatNoHostCanHaveMakesAPurgePartialAndIsNotAddedUp(t *testing.T) {
	claims := func(n int) *scripted {
		return &scripted{purge: func(_ context.Context, scope, thread string) (control.PurgeResult, error) {
			return control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread, Disposed: n}, nil
		}}
	}
	for _, bad := range []int{math.MaxInt, control.MaxInventory + 1, -1} {
		result, err := composite(0, claims(bad), claims(3), claims(bad)).Purge(context.Background(), "s", "t", 0)
		if err != nil || result.Status != control.PurgePartial || result.Disposed != 3 || result.Message != "Conversation purge was incomplete on 2 host(s)." {
			t.Errorf("%d: Purge = %+v, %v", bad, result, err)
		}
		var read control.PurgeResult
		text := fmt.Sprintf(`{"status":"purged","scope":"s","thread_id":"t","disposed":%d,"message":""}`, bad)
		if err := read.UnmarshalJSON([]byte(text)); !errors.Is(err, control.ErrInvalidMessage) {
			t.Errorf("%s was read as %+v, %v", text, read, err)
		}
	}
}
