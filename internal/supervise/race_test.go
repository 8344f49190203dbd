//go:build race

package supervise

const raceEnabled = true
