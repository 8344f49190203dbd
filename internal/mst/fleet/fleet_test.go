package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func open(t *testing.T, config Config) *Fleet {
	t.Helper()
	f, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func serve(t *testing.T, directory, source string, records ...control.Record) *control.Server {
	t.Helper()
	server, err := control.NewServer(control.ServerConfig{Control: control.NewMemory(records...), SourceID: source, Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func sandbox(source, id string) control.Record {
	return control.Record{SourceID: source, Scope: "s", ThreadID: "t", AgentID: "a", Kind: "k", InstanceID: id, State: control.StateReady}
}

const deadHost = `{"source_id": "gone", "endpoint": "http://127.0.0.1:9", "process_id": 12, "protocol_version": 1}`

func TestADemonstrationLeavesNothingBehind(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	f, err := Open(Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := f.Inventory(t.Context())
	if err != nil || len(inventory.Records) != 3 || !inventory.Complete() || inventory.Records[0].SourceID != DemoSource {
		t.Errorf("got %v, %v", inventory, err)
	}
	if result, err := f.Dispose(t.Context(), inventory.Records[0].InstanceID, time.Minute); err != nil || result.Status != control.Disposed {
		t.Errorf("dispose: %v, %v", result, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestADemonstrationThatCannotStartSaysSoAndCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if _, err := Open(Config{Demo: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestANamedHostIsTheOnlyOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	server := serve(t, dir, "one", sandbox("one", "a"))
	manifest, err := server.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, Config{Endpoint: manifest.Endpoint + "/", Source: "mine", Directory: "/nonexistent"})
	hosts, err := f.Hosts(t.Context())
	if err != nil || len(hosts) != 1 || hosts[0].Err != nil {
		t.Fatalf("got %v, %v", hosts, err)
	}
	if got := hosts[0].Client.Manifest(); got.SourceID != "mine" || got.Endpoint != manifest.Endpoint || got.ProcessID != 0 {
		t.Errorf("got %+v", got)
	}
	announced, err := f.Announced()
	if err != nil || len(announced) != 1 {
		t.Fatalf("announced %v, %v", announced, err)
	}
	records, err := f.Ask(t.Context(), announced[0])
	if err != nil || len(records) != 1 {
		t.Errorf("got %v, %v", records, err)
	}
}

func TestEndpointsThatAreNoneAreRefused(t *testing.T) {
	for _, endpoint := range []string{"https://127.0.0.1:1", "http://localhost:1", "x", "http://10.0.0.1:1"} {
		var refused *control.EndpointError
		if _, err := Open(Config{Endpoint: endpoint, Source: "x"}); !errors.As(err, &refused) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if _, err := Open(Config{Endpoint: "http://127.0.0.1:1"}); !errors.Is(err, ErrNoSource) {
		t.Errorf("without a label: %v", err)
	}
}

func TestHostsThatAreGoneMakeAnAnswerIncomplete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	serve(t, dir, "one", sandbox("one", "a"))
	if err := os.WriteFile(filepath.Join(dir, "0.json"), []byte(deadHost), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, Config{Directory: dir})
	inventory, err := f.Inventory(t.Context())
	if err != nil || len(inventory.Records) != 1 || len(inventory.Failures) != 1 || inventory.Failures[0].SourceID != "gone" {
		t.Errorf("got %+v, %v", inventory, err)
	}
	found, err := f.Locate(t.Context(), "a")
	if err != nil || found.Record == nil || len(found.Failures) != 1 || found.Hosts != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
	found, err = f.Locate(t.Context(), "b")
	if err != nil || found.Record != nil || len(found.Failures) != 1 {
		t.Errorf("found %+v, %v", found, err)
	}
	result, failures, err := f.Purge(t.Context(), "s", "t", time.Minute)
	if err != nil || result.Status != control.PurgePartial || result.Disposed != 1 || len(failures) != 1 {
		t.Errorf("purged %+v, %v, %v", result, failures, err)
	}
}

func TestAnIDAtSeveralHostsIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	serve(t, dir, "one", sandbox("one", "a"))
	serve(t, dir, "two", sandbox("two", "a"))
	f := open(t, Config{Directory: dir})
	if _, err := f.Locate(t.Context(), "a"); !errors.Is(err, control.ErrDuplicate) {
		t.Errorf("got %v", err)
	}
}

func TestAFolderThatIsNotPrivateIsAnErrorOfEveryQuestion(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f := open(t, Config{Directory: dir})
	_, hosts := f.Hosts(t.Context())
	_, inventory := f.Inventory(t.Context())
	_, locate := f.Locate(t.Context(), "x")
	_, announced := f.Announced()
	_, dispose := f.Dispose(t.Context(), "x", time.Minute)
	_, _, purge := f.Purge(t.Context(), "s", "t", time.Minute)
	for i, err := range []error{hosts, inventory, locate, announced, dispose, purge} {
		if !errors.Is(err, control.ErrUnsafeDirectory) {
			t.Errorf("question %d: %v", i, err)
		}
	}
}

func TestTheEndOfTheContextEndsEveryQuestion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	serve(t, dir, "one", sandbox("one", "a"))
	f := open(t, Config{Directory: dir})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, hosts := f.Hosts(ctx)
	_, inventory := f.Inventory(ctx)
	_, locate := f.Locate(ctx, "x")
	if errs := []error{hosts, inventory, locate}; slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, context.Canceled) }) {
		t.Errorf("got %v", errs)
	}
	if _, err := f.Ask(ctx, control.Manifest{SourceID: "x", Endpoint: "nonsense"}); err == nil {
		t.Error("asked an endpoint that is none")
	}
}
