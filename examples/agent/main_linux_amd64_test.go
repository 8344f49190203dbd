package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// playEnv has the test program be the example.
const playEnv = "EXAMPLE_AGENT_TEST_PLAY"

// patience bounds a hang: the first start captures and boots a Python.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheExampleRunsTheProgramOfItsModel(t *testing.T) {
	if p := hosttest.Open(t); p.Name() != "kvm" {
		t.Skipf("the example has micro-VMs, and the tests run on %s", p.Name())
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	example := exec.CommandContext(ctx, os.Args[0])
	example.Env = append(os.Environ(), playEnv+"=1", "MAF_SANDBOX_CACHE="+filepath.Join(t.TempDir(), "cache"))
	var stderr bytes.Buffer
	example.Stderr = &stderr
	if out, err := example.Output(); err != nil || string(out) != "stdout:\n42\n" || stderr.Len() > 0 {
		t.Errorf("it says %q, %v, %q", out, err, &stderr)
	}
}
