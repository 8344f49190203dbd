// Package wire is the language between a host and its workers: frames on a
// stream socket.
//
// A frame is a header of 12 bytes, little endian (length of the payload, 32
// bits; kind, 32 bits; number of the call, 32 bits), and the payload. Output is
// carried as it is; everything else is CBOR (RFC 8949) of one Go struct.
//
// Both sides distrust the other: a length is checked against the reader's bound
// before anything is allocated, unknown kinds and fields, duplicate keys, tags
// and indefinite lengths are errors, and an error ends the connection.
package wire
