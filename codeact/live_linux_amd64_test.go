package codeact_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// liveTool is a tool over real sandboxes.
func liveTool(t *testing.T) *codeact.Tool {
	t.Helper()
	hosttest.Open(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	b, err := microvm.New(microvm.Config{
		Private: true, CacheDir: t.TempDir(), Engine: microvm.Engine(hosttest.Engine()), Enforcement: microvm.EnforceRlimit,
		StartupTimeout: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	floor := sandbox.IsolationMicroVM
	if hosttest.Engine() != host.KVM {
		floor = sandbox.IsolationProcess
	}
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset, MinIsolation: floor})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := codeact.NewTool(r, codeact.Config{
		AgentID: "a", Shape: codeact.ShapePlain, Timeout: 30 * time.Second,
		Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} }, Tools: []sandbox.Tool{weather},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// The instructions are what a model believes; each sentence is asked of a real
// sandbox here.
func TestInstructionsAreTrueOfARealSandbox(t *testing.T) {
	tool := liveTool(t)
	_, list, found := strings.Cut(tool.Instructions(), "Not there: ")
	list, _, ended := strings.Cut(list, ".")
	if !found || !ended {
		t.Fatalf("no list of absent modules in %q", tool.Instructions())
	}
	for _, r := range []struct{ claim, code, want string }{
		{"stock CPython 3", `import sys; print(sys.implementation.name, sys.version_info.major)`, "stdout:\ncpython 3"},
		{"its standard library", `import asyncio, csv, ctypes, datetime, decimal, hashlib, json, pickle, re, sqlite3, ssl, statistics, unittest, urllib.request, zoneinfo, __future__; print('all')`, "stdout:\nall"},
		{
			"Not there: " + list,
			"import importlib\nfor name in " + `"` + list + `".split(", "):` + "\n try: importlib.import_module(name)\n except ImportError: pass\n else: print(name)",
			nothingPrinted,
		},
		{"the value of a last expression is not shown", `6*7`, nothingPrinted},
		{"Local time is UTC", `import time; print(time.tzname, time.timezone)`, "stdout:\n('UTC', 'UTC') 0"},
		{"input() meets the end of the input at once", "try: input()\nexcept EOFError: print('end')", "stdout:\nend"},
		{"Every call starts anew", `left = 1; open('/work/left', 'w').write('x'); print('made')`, "stdout:\nmade"},
		{"no name, import or file of an earlier call is there", `import os; print('left' in globals(), os.listdir('/work'))`, "stdout:\nFalse []"},
		{"Files can be written below /tmp and /work", "for d in '/tmp', '/work':\n open(d + '/f', 'w').write('x')\nprint('written')", "stdout:\nwritten"},
		{"nothing of the host's files", `import os; print([d for d in ('/home', '/var', '/mnt', '/boot') if os.path.exists(d)], 'PATH' in os.environ)`, "stdout:\n[] False"},
		{"Threads", "import threading\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()", "stdout:\nt"},
		{"asyncio work", "import asyncio\nasync def main(): await asyncio.sleep(0.01); return 'a'\nprint(asyncio.run(main()))", "stdout:\na"},
		{"on one processor", `import os; print(os.cpu_count())`, "stdout:\n1"},
		{
			"subprocess, os.fork and multiprocessing raise OSError",
			"import subprocess, os, multiprocessing\nfor f in (lambda: subprocess.run(['ls'])), os.fork, (lambda: multiprocessing.Process(target=print).start()):\n try: f()\n except OSError: print('refused')",
			"stdout:\nrefused\nrefused\nrefused",
		},
		{
			"There is no network",
			"import socket, urllib.request\nfor f in (lambda: socket.create_connection(('192.0.2.1', 80), 1)), (lambda: urllib.request.urlopen('http://example.com', timeout=1)):\n try: f()\n except OSError: print('refused')",
			"stdout:\nrefused\nrefused",
		},
		{
			"sockets reach the program itself",
			"import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.sendall(b'x'); print(a.recv(1))",
			"stdout:\nb'x'",
		},
		{"which is there without an import, waits, and returns", "print(call_tool('weather', city='Bonn'))", "stdout:\n{'celsius': 21.5}"},
		{"When a function fails it raises call_tool.ToolError, a RuntimeError", "for city in 'Paris', float('nan'), b'x':\n try: call_tool('weather', city=city)\n except (call_tool.ToolError, TypeError, ValueError) as e: print(type(e).__name__)", "stdout:\nToolError\nValueError\nTypeError"},
	} {
		if !strings.Contains(tool.Instructions(), r.claim) {
			t.Errorf("the instructions do not say %q", r.claim)
		}
		got := texts(t, tool, r.code)[0]
		if got != r.want {
			t.Errorf("%s: got %q, want %q", r.claim, got, r.want)
		}
	}
}

const nothingPrinted = "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see."
