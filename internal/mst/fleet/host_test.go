package fleet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// rawHost is a host that says anything.
type rawHost struct {
	health, list, get http.HandlerFunc
}

// announce starts the host and announces it in a file of this name.
func (r rawHost) announce(t *testing.T, directory, file, source string) {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /v1/health": r.health, "GET /v1/sandboxes": r.list, "GET /v1/sandboxes/{id}": r.get,
	} {
		if handler == nil {
			handler = says(http.StatusInternalServerError, `{"error": "broken"}`)
			if pattern == "GET /v1/health" {
				handler = healthy(source)
			}
		}
		mux.HandleFunc(pattern, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"source_id": %q, "endpoint": %q, "process_id": 12, "protocol_version": 1}`, source, server.URL)
	if err := os.WriteFile(filepath.Join(directory, file), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func healthy(source string) http.HandlerFunc {
	return says(http.StatusOK, fmt.Sprintf(`{"protocol_version": 1, "source_id": %q}`, source))
}

func lists(t *testing.T, records ...control.Record) http.HandlerFunc {
	t.Helper()
	var items []byte
	for i, r := range records {
		item, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			items = append(items, ',')
		}
		items = append(items, item...)
	}
	return says(http.StatusOK, fmt.Sprintf(`{"protocol_version": 1, "sandboxes": [%s]}`, items))
}

var nothingThere = says(http.StatusNotFound, `{"status": "not_found", "message": "gone"}`)

// The first host does not say who it is before the second has been asked for its
// sandboxes; asked one after the other, it would be late.
func TestAHostThatTakesLongToSayWhoItIsHoldsUpNoOther(t *testing.T) {
	for name, ask := range map[string]func(*Fleet) ([]*control.HostError, error){
		"all": func(f *Fleet) ([]*control.HostError, error) {
			inventory, err := f.Inventory(t.Context())
			return inventory.Failures, err
		},
		"one": func(f *Fleet) ([]*control.HostError, error) {
			found, err := f.Locate(t.Context(), "x")
			return found.Failures, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "hosts")
			asked := make(chan struct{})
			var once sync.Once
			tell := func(next http.HandlerFunc) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					once.Do(func() { close(asked) })
					next(w, r)
				}
			}
			rawHost{
				health: func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-asked:
						healthy("slow")(w, r)
					case <-r.Context().Done():
					}
				},
				list: lists(t), get: nothingThere,
			}.announce(t, dir, "1.json", "slow")
			rawHost{list: tell(lists(t)), get: tell(nothingThere)}.announce(t, dir, "2.json", "quick")
			if failures, err := ask(open(t, Config{Directory: dir})); err != nil || len(failures) != 0 {
				t.Errorf("%v, %v", failures, err)
			}
		})
	}
}

func TestHostsThatDoNotSayWhoTheyAreAreNamedFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	broken := says(http.StatusInternalServerError, `{"error": "broken"}`)
	rawHost{}.announce(t, dir, "1.json", "c")
	rawHost{health: broken}.announce(t, dir, "2.json", "b")
	rawHost{}.announce(t, dir, "3.json", "a")
	rawHost{health: healthy("other")}.announce(t, dir, "4.json", "d")
	f := open(t, Config{Directory: dir})
	inventory, err := f.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := f.Locate(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, failures := range [][]*control.HostError{inventory.Failures, found.Failures} {
		var names []string
		for _, failure := range failures {
			names = append(names, failure.SourceID)
		}
		if want := []string{"b", "d", "c", "a"}; !slices.Equal(names, want) {
			t.Errorf("named %q, want %q", names, want)
		}
	}
}

func TestAHostWithTheNameOfAnotherDoesNotHideIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	rawHost{}.announce(t, dir, "1.json", "one")
	rawHost{list: lists(t, sandbox("one", "abcd1"), sandbox("one", "xyz")), get: nothingThere}.announce(t, dir, "2.json", "one")
	f := open(t, Config{Directory: dir})
	found, err := f.Locate(t.Context(), "abcd")
	if err != nil || len(found.Failures) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	records, failures, err := f.Beginning(t.Context(), found, "abcd")
	if err != nil || len(failures) != 0 || len(records) != 1 || records[0].InstanceID != "abcd1" {
		t.Errorf("got %v, %v, %v", records, failures, err)
	}
}

func TestAHostThatDoesNotListItsSandboxesIsNamedBesideABeginning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	rawHost{get: nothingThere}.announce(t, dir, "1.json", "mute")
	rawHost{list: lists(t, sandbox("one", "abcd1")), get: nothingThere}.announce(t, dir, "2.json", "one")
	f := open(t, Config{Directory: dir})
	found, err := f.Locate(t.Context(), "abcd")
	if err != nil || len(found.Failures) != 0 {
		t.Fatalf("found %+v, %v", found, err)
	}
	records, failures, err := f.Beginning(t.Context(), found, "abcd")
	if err != nil || len(records) != 1 || len(failures) != 1 || failures[0].SourceID != "mute" {
		t.Errorf("got %v, %v, %v", records, failures, err)
	}
}
