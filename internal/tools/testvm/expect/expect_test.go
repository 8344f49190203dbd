package expect

import (
	"fmt"
	"runtime"
	"testing"
)

// ending notes how a test ended.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Helper() {}

func (e *ending) end(how, format string, args []any) {
	e.how = how + ": " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (e *ending) Fatalf(format string, args ...any) { e.end("failed", format, args) }
func (e *ending) Skipf(format string, args ...any)  { e.end("skipped", format, args) }

func TestWhatIsPromisedIsNeverSkipped(t *testing.T) {
	for _, c := range []struct{ promised, want string }{
		{"", "skipped: no cgroup 2"},
		{"kvm", "skipped: no cgroup 2"},
		{"cgroups", "skipped: no cgroup 2"},
		{"cgroup", "failed: cgroup is promised here (MAF_SANDBOX_TEST_EXPECT): no cgroup 2"},
		{Join([]Thing{KVM, Cgroup}), "failed: cgroup is promised here (MAF_SANDBOX_TEST_EXPECT): no cgroup 2"},
	} {
		t.Run(c.promised, func(t *testing.T) {
			t.Setenv(Env, c.promised)
			e := &ending{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				Cgroup.Skip(e, "no cgroup %d", 2)
			}()
			<-done
			if e.how != c.want {
				t.Errorf("%q, want %q", e.how, c.want)
			}
		})
	}
}
