package microvm

import (
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// harness is what the conformance suite knows of a configuration.
func harness(t *testing.T, c Config) sandboxtest.Harness {
	spec := sandbox.Spec{Kind: "conformance", Requires: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot)}
	workDir := spec
	workDir.WorkDir = sandbox.DefaultWorkDir
	return sandboxtest.Harness{
		New: func(tt sandboxtest.T) sandbox.Backend {
			c := c
			c.LockDir = t.TempDir()
			b, err := New(c)
			if err != nil {
				tt.Fatalf("%v", err)
			}
			return b
		},
		Spec:      spec,
		Programs:  sandboxtest.PythonPrograms(),
		MaxCode:   DefaultMaxCode,
		MaxOutput: DefaultMaxOutput,
		Refused: []sandboxtest.RefusedSpec{
			{Name: "a work folder", Spec: workDir, Reason: sandbox.ErrNotSupported},
		},
		Short: 150 * time.Millisecond,
	}
}

func TestTheBackendConforms(t *testing.T) {
	c := live(t)
	c.Pool = 2
	sandboxtest.RunConformance(t, harness(t, c))
}
