package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
)

// pasted is a server in a client's configuration, whatever the client calls it.
type pasted struct {
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Bearer  string            `json:"bearer_token_env_var"`
}

var (
	// fence is a block of code and its language.
	fence = regexp.MustCompile("(?ms)^```(json|toml|sh)\n(.*?)^```$")
	// inline is a command line in running text.
	inline = regexp.MustCompile("`([^`\n]*" + cli.Program + " mcp[^`\n]*)`")
	// tokenWord is what stands for the token.
	tokenWord = regexp.MustCompile(`TOKEN|\$\{input:token\}|\$\(cat token\)`)
)

// manual is what the README says to clients: the servers of its configurations and
// the command lines that it shows.
func manual(t *testing.T) (servers []pasted, commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## For MCP clients\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("the README has no section for clients")
	}
	for _, block := range fence.FindAllStringSubmatch(section, -1) {
		switch language, code := block[1], block[2]; language {
		case "json":
			servers = append(servers, fromJSON(t, code)...)
		case "toml":
			servers = append(servers, fromTOML(t, code))
		case "sh":
			commands = append(commands, strings.Split(strings.TrimSpace(code), "\n")...)
		}
	}
	for _, line := range inline.FindAllStringSubmatch(section, -1) {
		commands = append(commands, line[1])
	}
	return servers, commands
}

// fromJSON reads the form of Claude Desktop, Cursor and Windsurf, and that of VS
// Code.
func fromJSON(t *testing.T, code string) (servers []pasted) {
	t.Helper()
	var file struct {
		McpServers, Servers map[string]pasted
		Inputs              []struct{ ID, Type, Description string }
	}
	if err := json.Unmarshal([]byte(code), &file); err != nil {
		t.Fatalf("%v in %s", err, code)
	}
	for _, input := range file.Inputs {
		if !strings.Contains(code, "${input:"+input.ID+"}") {
			t.Errorf("the input %q is not used in %s", input.ID, code)
		}
	}
	for _, s := range file.McpServers {
		servers = append(servers, s)
	}
	for _, s := range file.Servers {
		if s.Type == "" {
			t.Errorf("VS Code wants a type in %s", code)
		}
		servers = append(servers, s)
	}
	if len(servers) != 1 {
		t.Errorf("%d servers in %s", len(servers), code)
	}
	return servers
}

// fromTOML reads the form of Codex: one table of strings and lists of them, which
// are written as in JSON.
func fromTOML(t *testing.T, code string) pasted {
	t.Helper()
	table, lines, _ := strings.Cut(strings.TrimSpace(code), "\n")
	if table != "[mcp_servers.python]" {
		t.Errorf("the table %s", table)
	}
	var members []string
	for line := range strings.Lines(lines) {
		key, value, found := strings.Cut(strings.TrimSpace(line), " = ")
		if !found {
			t.Fatalf("no pair: %q", line)
		}
		members = append(members, `"`+key+`": `+value)
	}
	var s pasted
	if err := json.Unmarshal([]byte("{"+strings.Join(members, ", ")+"}"), &s); err != nil {
		t.Fatalf("%v in %s", err, code)
	}
	return s
}

func TestConfigurationsInTheREADMEAreOfThisServer(t *testing.T) {
	servers, commands := manual(t)
	const secret = "0123456789abcdef0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, nil, "--http", "127.0.0.1:0", "--token-file", file)
	select {
	case <-s.errOut.wrote:
	case err := <-s.done:
		t.Fatalf("never served: %v", err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(s.errOut.String()), "serving MCP at ")

	local, remote := 0, 0
	for _, p := range servers {
		if p.URL == "" {
			local++
			if p.Command != cli.Program || len(p.Args) == 0 || p.Args[0] != "mcp" || p.Type != "" && p.Type != "stdio" {
				t.Errorf("started as %+v", p)
				continue
			}
			if _, err := parse(t, p.Args[1:]...); err != nil {
				t.Errorf("%v: %v", p.Args, err)
			}
			continue
		}
		remote++
		if p.Bearer != "" { // the client makes the header
			p.Headers = map[string]string{"Authorization": "Bearer TOKEN"}
		}
		if p.Type != "" && p.Type != "http" {
			t.Errorf("reached as %+v", p)
		}
		if got := initializes(t, p.URL, address, p.Headers, secret); got != http.StatusOK {
			t.Errorf("%+v: status %d", p, got)
		}
	}
	if local < 3 || remote < 3 {
		t.Errorf("%d servers that a client starts and %d that it reaches", local, remote)
	}

	shown := 0
	for _, line := range commands {
		if _, args, found := strings.Cut(line, cli.Program+" mcp"); found {
			shown++
			if _, err := parse(t, strings.Fields(args)...); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if fields := strings.Split(line, `"`); strings.HasPrefix(line, "claude mcp add --transport http") {
			shown++
			name, value, _ := strings.Cut(fields[1], ": ")
			if got := initializes(t, strings.Fields(fields[0])[6], address, map[string]string{name: value}, secret); got != http.StatusOK {
				t.Errorf("%s: status %d", line, got)
			}
		}
	}
	if shown < 4 {
		t.Errorf("%d command lines", shown)
	}
	s.signals <- os.Interrupt
	_ = s.ends(t)
}

// initializes begins a session at the address of a configuration, as it is here.
func initializes(t *testing.T, url, address string, headers map[string]string, secret string) (status int) {
	t.Helper()
	const there = "http://127.0.0.1:8080/"
	path, found := strings.CutPrefix(url, there)
	if !found {
		t.Errorf("the address %s", url)
	}
	here, _, _ := strings.Cut(strings.TrimPrefix(address, "http://"), "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+here+"/"+path, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		r.Header.Set(name, tokenWord.ReplaceAllString(value, secret))
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode
}
