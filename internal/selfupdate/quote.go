package selfupdate

import "strings"

// plain are the bytes that no POSIX shell and no PowerShell interprets inside a
// word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=+,%@"

// quote spells s as one word of a POSIX shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoteFor spells a path as one word of the shell of a system; that of Windows
// is PowerShell.
func quoteFor(goos, path string) string {
	if goos != "windows" {
		return quote(path)
	}
	if strings.Trim(path, plain+`\`) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", "''") + "'"
}
