package wheel

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel"
)

// release is a wheel on the index. says is what its program calls itself.
type release struct {
	version, says string
	yanked        bool
}

var releases = []release{
	{version: "0.1.0", says: "0.1.0"},
	{version: "0.2.0", says: "0.2.0"},
	{version: "0.3.0rc1", says: "0.3.0rc1"},
	{version: "0.4.0", says: "0.4.0", yanked: true},
	{version: "0.0.9", says: "0.1.0"}, // a release that went wrong
}

// programs are what was built before, by version. Tests here do not run in
// parallel.
var programs = map[string][]byte{}

func program(t *testing.T, version string) []byte {
	t.Helper()
	exe, ok := programs[version]
	if !ok {
		exe = build(t, version)
		programs[version] = exe
	}
	return exe
}

// index serves a simple index (PEP 503) and gives its address.
func index(t *testing.T) string {
	t.Helper()
	tg, err := wheel.ParseTarget(target())
	if err != nil {
		t.Skipf("no wheel is made for this machine: %v", err)
	}
	dir := t.TempDir()
	var page strings.Builder
	for _, r := range releases {
		exe := program(t, r.says)
		s := wheel.Spec{Name: distribution, Version: r.version, Target: tg, Command: "mst", Executable: exe, Summary: "test", License: "MIT"}
		var b bytes.Buffer
		if err := wheel.Write(&b, s); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.Filename()), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		yanked := ""
		if r.yanked {
			yanked = ` data-yanked="broken"`
		}
		fmt.Fprintf(&page, "<a href=\"/files/%s#sha256=%x\"%s>%s</a>\n", html.EscapeString(s.Filename()), sha256.Sum256(b.Bytes()), yanked, html.EscapeString(s.Filename()))
	}
	return simple(t, dir, page.String())
}

// simple serves the wheels of a folder, with the page that lists them.
func simple(t *testing.T, dir, page string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/"+distribution+"/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html><body>\n%s</body></html>\n", page)
	})
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(dir))))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ReadHeaderTimeout = time.Minute
	server.Start()
	t.Cleanup(server.Close)
	return server.URL + "/simple/"
}
