//go:build race

package helper

// A helper whose program looks for races keeps the detector's options. Without
// them each waits a second at its end.
func init() { environment = append(environment, "GORACE") }
