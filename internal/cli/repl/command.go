package repl

import (
	"fmt"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
)

// command is a line that is for the console and not for Python.
type command struct {
	name, arg, help string
	run             func(s *session, arg string) error
}

// commands is the one table of them; help comes from it too. It is a function
// because :help reads it.
func commands() []command {
	return []command{
		{":reset", "", "start afresh: all names are forgotten", (*session).reset},
		{":time", "[CODE]", "run CODE and say how long it took; alone: say so after every statement, or stop it", (*session).time},
		{":help", "", "show this", (*session).help},
		{":quit", "", "end (also Ctrl-D)", func(*session, string) error { return errQuit }},
	}
}

// leaving are the lines by which people try to leave Python.
var leaving = words("exit exit() quit quit()")

// command runs line if it is one and says whether it was.
func (s *session) command(line string) (done bool, err error) {
	line = strings.TrimSpace(line)
	if leaving[line] {
		return true, errQuit
	}
	if !strings.HasPrefix(line, ":") {
		return false, nil
	}
	name, arg, _ := strings.Cut(line, " ")
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		arg = strings.TrimSpace(arg)
		if c.arg == "" && arg != "" {
			s.say("%s takes nothing after it", name)
			return true, nil
		}
		return true, c.run(s, arg)
	}
	s.say("no command %s; :help lists them", name)
	return true, nil
}

func (s *session) reset(string) error {
	err := s.machine.Reset(s.ctx)
	if err == nil {
		return nil
	}
	s.say("%s", cli.Message(err))
	_ = s.machine.Close() // a machine that cannot be reset is of no use
	s.machine = nil
	return s.open()
}

func (s *session) time(code string) error {
	if code == "" {
		s.timing = !s.timing
		state := "off"
		if s.timing {
			state = "on"
		}
		s.say("timing is %s", state)
		return nil
	}
	defer func(was bool) { s.timing = was }(s.timing)
	s.timing = true
	return s.execute(code + "\n")
}

func (s *session) help(string) error {
	return s.o.Factory.Streams.WriteOut([]byte(commandHelp()))
}

func commandHelp() string {
	var b strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-13s %s\n", strings.TrimSpace(c.name+" "+c.arg), c.help)
	}
	return b.String()
}
