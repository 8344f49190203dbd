//go:build !unix

package selfupdate

// lockFolder does nothing: uv and pipx cannot update a program that runs on
// this system, and go install puts a finished file in place in one step.
func lockFolder(string) (release func(), err error) { return func() {}, nil }
