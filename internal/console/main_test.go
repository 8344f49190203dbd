package console

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/leaktest"
)

// playEnv makes the test program be a console; its value is the time between two
// looks.
const playEnv = "CONSOLE_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) == "" {
		os.Exit(leaktest.Main(m))
	}
	interval, err := time.ParseDuration(os.Getenv(playEnv))
	if err == nil {
		err = Run(context.Background(), growing(), Config{Interval: interval})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// growingHosts are a host that has one sandbox more at every look.
type growingHosts struct {
	*fakeHosts
	looks   atomic.Int32
	records []control.Record
}

// growing has 40 sandboxes at first, t-01 to t-40 with the ids id-01 to id-40.
func growing() *growingHosts {
	h := &growingHosts{records: sandboxes("one", 60)}
	for i := range h.records {
		h.records[i].ThreadID, h.records[i].InstanceID = fmt.Sprintf("t-%02d", i+1), fmt.Sprintf("id-%02d", i+1)
	}
	h.fakeHosts = newHosts().add("one", h.records...)
	return h
}

func (h *growingHosts) Ask(context.Context, control.Manifest) ([]control.Record, error) {
	return h.records[:min(39+int(h.looks.Add(1)), len(h.records))], nil
}
