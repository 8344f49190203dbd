package repl

import (
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// block gathers lines until they make up a statement that can be run.
//
// The rules are those of Python's own prompt as far as they can be told without
// parsing Python: lines go on while a bracket, a triple-quoted string or a
// backslash is open; a compound statement or decorator goes on until an empty
// line. Beyond that prompt, a compound statement that has its body also ends
// before a line that cannot belong to it, so that pasted code works. Whether
// the text is Python at all is for the guest to say.
type block struct {
	lines     []string
	size      int  // of lines, in bytes
	scan      scan // over all lines
	compound  bool // an empty line ends it
	wantsBody bool // the last logical line needs an indented one after it
}

// empty says that no statement has begun.
func (b *block) empty() bool { return len(b.lines) == 0 }

// reset forgets what was gathered.
func (b *block) reset() { *b = block{} }

// take gives what was gathered, empty if that is nothing, and starts anew.
func (b *block) take() string {
	if b.empty() {
		return ""
	}
	text := strings.Join(b.lines, "\n") + "\n"
	b.reset()
	return text
}

// feed adds a line and gives the statements that are complete by it: none, one,
// or two when line ended one statement by being another.
func (b *block) feed(line string) []string {
	switch {
	case b.scan.open():
		return b.add(line)
	case b.empty():
		if isBlank(line) {
			return nil
		}
		return b.add(line)
	case strings.TrimSpace(line) == "":
		return []string{b.take()}
	case !b.wantsBody && !belongs(line):
		first := b.take()
		return append([]string{first}, b.feed(line)...)
	}
	return b.add(line)
}

func (b *block) add(line string) []string {
	b.lines = append(b.lines, line)
	b.size += len(line) + 1
	b.scan.line(line)
	if b.size > microvm.MaxMaxCode {
		return []string{b.take()} // the engine refuses it by name
	}
	if b.scan.open() {
		return nil
	}
	if b.scan.comment() {
		return nil // decides nothing about the statement it stands in
	}
	b.wantsBody = b.scan.last == ':' || b.scan.first == "@"
	b.compound = b.compound || b.wantsBody || compoundWords[b.scan.first]
	if b.compound {
		return nil
	}
	return []string{b.take()}
}

// compoundWords begin statements that may have more clauses on later lines.
var compoundWords = words("if for while with try def class async")

// clauseWords begin the later clauses of a statement.
var clauseWords = words("else elif except finally")

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// belongs says whether line can be part of the compound statement before it.
func belongs(line string) bool {
	return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") ||
		isBlank(line) || clauseWords[firstWord(line)]
}

// isBlank says whether line holds nothing but space and a comment.
func isBlank(line string) bool {
	s := strings.TrimSpace(line)
	return s == "" || s[0] == '#'
}

// firstWord gives the identifier that s begins with, or else its first
// character.
func firstWord(s string) string {
	s = strings.TrimSpace(s)
	for i, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') && r < 0x80 {
			if i == 0 {
				return s[:1]
			}
			return s[:i]
		}
	}
	return s
}
