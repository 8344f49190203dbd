// Package x86 gives the instructions that describe a processor and read its
// time stamp counter.
package x86
