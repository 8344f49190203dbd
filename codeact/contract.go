package codeact

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// contract is the execution contract of programs that were written under these
// instructions, as the Python original of that shape makes it: the SHA-256 of the
// JSON text [instructions, null], and since 0.25 [instructions, null, true]. The
// others are the folder of a file channel, which this tool has not, and whether
// calls have folders of their own. Equal instructions give equal contracts in
// both languages.
func contract(instructions string, shape Shape) string {
	rest := ", null, true]"
	if shape == ShapePlain {
		rest = ", null]"
	}
	sum := sha256.Sum256(append(pyjson.AppendString([]byte{'['}, instructions), rest...))
	return "codeact:run_code:" + hex.EncodeToString(sum[:])
}
