//go:build !race

package supervise

const raceEnabled = false
