// Package bench measures the promises of SPECIFICATION.md, one benchmark each,
// and compares them with their targets and with a yardstick.
package bench
