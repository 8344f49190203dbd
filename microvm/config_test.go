package microvm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestAConfigurationIsRefusedWithEveryProblemAtOnce(t *testing.T) {
	_, err := New(Config{
		CacheDir: "relative", Memory: 1, WorkerMemory: 1 << 50, Enforcement: "hope", Engine: "steam", CgroupRoot: "/x", MaxCode: MaxMaxCode + 1,
		MaxOutput: -1, StartupTimeout: -time.Second, CleanupTimeout: time.Hour, Overrun: "shrug", Grace: time.Hour,
		Pool: MaxPool + 1, Namespace: "no/slash", LockDir: "relative", WorkerPath: "relative",
	})
	for _, field := range []string{
		"cache_dir", "memory", "worker_memory", "enforcement", "engine", "cgroup_root", "max_code", "max_output", "startup_timeout",
		"cleanup_timeout", "overrun", "grace", "pool", "namespace", "lock_dir", "worker_path",
	} {
		if err == nil || !strings.Contains(err.Error(), "config."+field+":") {
			t.Errorf("config.%s is not named by: %v", field, err)
		}
	}
	var refusal *sandbox.RefusalError
	if !errors.Is(err, sandbox.ErrInvalid) || !errors.As(err, &refusal) || refusal.Asked == "" || refusal.Allowed == "" || refusal.Decider == "" {
		t.Errorf("not a refusal in words: %v", err)
	}
}

func TestOneFieldAtATimeIsRefusedAtItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		ok     bool
	}{
		"the zero value":                      {Config{}, true},
		"the least memory":                    {Config{Memory: MinMemory}, true},
		"less memory":                         {Config{Memory: MinMemory - 1}, false},
		"the most memory":                     {Config{Memory: MaxMemory}, true},
		"more memory":                         {Config{Memory: MaxMemory + 1}, false},
		"the lowest ceiling":                  {Config{WorkerMemory: DefaultMemory + WorkerOverhead}, true},
		"a ceiling too low for the guest":     {Config{WorkerMemory: DefaultMemory + WorkerOverhead - 1}, false},
		"the highest ceiling":                 {Config{WorkerMemory: MaxWorkerMemory}, true},
		"the most code":                       {Config{MaxCode: MaxMaxCode}, true},
		"the most output":                     {Config{MaxOutput: MaxMaxOutput}, true},
		"more output":                         {Config{MaxOutput: MaxMaxOutput + 1}, false},
		"no spare workers":                    {Config{Pool: 0}, true},
		"spare workers below zero":            {Config{Pool: -1}, false},
		"a private namespace with a name":     {Config{Namespace: "n", Private: true}, false},
		"a root of control groups for rlimit": {Config{Enforcement: EnforceRlimit, CgroupRoot: "/sys/fs/cgroup/x"}, false},
		"the original's rule":                 {Config{Overrun: OverrunRetire}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c.config); (err == nil) != c.ok {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestDefaultsAreTheOriginals(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.StartupTimeout != 30*time.Second || c.CleanupTimeout != 3*time.Second || c.MaxCode != 1<<20 || c.MaxOutput != 1<<20 {
		t.Errorf("%+v", c)
	}
	if c.Enforcement != EnforceCgroup || c.Overrun != OverrunInterrupt || c.WorkerMemory <= c.Memory {
		t.Errorf("%+v", c)
	}
}

func TestSpecsAreRefusedInTheRecordedOrder(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := sandbox.DefaultSpec("k")
	s.Egress = sandbox.EgressUnrestricted
	s.RequiresOSFamily = sandbox.OSWindows
	_, err = b.Acquire(t.Context(), sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}, s)
	at := -1
	for _, subject := range []string{"spec.requires:", "spec.requires_os_family:", "spec.work_dir:", "spec.egress:"} {
		next := strings.Index(err.Error(), subject)
		if next <= at {
			t.Fatalf("%s is missing or too early in: %v", subject, err)
		}
		at = next
	}
	if !errors.Is(err, sandbox.ErrCapabilityNotSupported) || !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("%v", err)
	}
}

func TestAHostWithoutACacheFolderIsToldWhatToSet(t *testing.T) {
	for _, name := range []string{CacheEnv, "HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	_, err := New(Config{})
	want := "invalid: config.cache_dir: asked for the user's cache folder, which is not known, allowed is an absolute path, here or in " + CacheEnv + ", decided by package microvm: "
	if !errors.Is(err, sandbox.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Config{CacheDir: t.TempDir()}); err != nil {
		t.Error(err)
	}
}
