package control

import "strings"

// route is what a request asks for.
type route uint8

const (
	routeUnknown route = iota
	routeHealth
	routeInventory
	routeInstance
	routeConversation
)

// methods are those that a route answers, in the order of the Allow header.
func (r route) methods() []string {
	switch r {
	case routeHealth, routeInventory:
		return []string{"GET"}
	case routeInstance:
		return []string{"GET", "DELETE"}
	case routeConversation:
		return []string{"DELETE"}
	}
	return nil
}

// target is a request's route and what it names.
type target struct {
	route route
	// instanceID is that of routeInstance; may be empty.
	instanceID string
	// scope and threadID are those of routeConversation; may be empty.
	scope, threadID string
}

const (
	pathHealth    = "/v1/health"
	pathInventory = "/v1/sandboxes"
	pathInstance  = pathInventory + "/"
	pathScopes    = "/v1/scopes/"
)

// splitTarget cuts the target of a request line into its path and its query,
// both as they were sent: the path decides what is meant before it is decoded.
func splitTarget(requestURI string) (path, query string) {
	rest, _, _ := strings.Cut(requestURI, "#")
	rest, query, _ = strings.Cut(rest, "?")
	if !strings.HasPrefix(rest, "/") {
		// The absolute form; whose authority it names was checked with Host.
		if _, after, found := strings.Cut(rest, "://"); found {
			if slash := strings.IndexByte(after, '/'); slash >= 0 {
				return after[slash:], query
			}
			return "/", query
		}
	}
	return "/" + strings.TrimLeft(rest, "/"), query
}

// parsePath finds the route of a path that is still escaped. An id is
// everything after its prefix, decoded once; a conversation is split at its
// slashes first.
func parsePath(path string) target {
	switch path {
	case pathHealth:
		return target{route: routeHealth}
	case pathInventory:
		return target{route: routeInventory}
	}
	if id, found := strings.CutPrefix(path, pathInstance); found {
		return target{route: routeInstance, instanceID: unescape(id)}
	}
	if rest, found := strings.CutPrefix(path, pathScopes); found {
		parts := strings.Split(rest, "/")
		if len(parts) == 3 && parts[1] == "threads" {
			return target{route: routeConversation, scope: unescape(parts[0]), threadID: unescape(parts[2])}
		}
	}
	return target{}
}

// unescape decodes the percent escapes of a path once. What is no escape stays
// as it is, and what is not UTF-8 becomes U+FFFD.
func unescape(s string) string {
	if strings.IndexByte(s, '%') >= 0 {
		decoded := make([]byte, 0, len(s))
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				high, low := unhex(s[i+1]), unhex(s[i+2])
				if high >= 0 && low >= 0 {
					decoded = append(decoded, byte(high<<4|low))
					i += 2
					continue
				}
			}
			decoded = append(decoded, s[i])
		}
		s = string(decoded)
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// escape is the counterpart: everything but unreserved characters (RFC 3986,
// section 2.3) is escaped.
func escape(s string) string {
	const hexUpper = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if letter || digit || c == '_' || c == '.' || c == '-' || c == '~' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexUpper[c>>4])
		b.WriteByte(hexUpper[c&15])
	}
	return b.String()
}

// queryTimeouts are all values that a query has for the timeout. Fields end at
// ampersands only, and what is no escape stays as it is, as in the peers: a value
// that is no number is then refused, and none is overlooked.
func queryTimeouts(query string) []string {
	var values []string
	for field := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(field, "=")
		if field != "" && unescapeQuery(name) == "timeout" {
			values = append(values, unescapeQuery(value))
		}
	}
	return values
}

// unescapeQuery is unescape for a part of a query, where a plus is a space.
func unescapeQuery(s string) string { return unescape(strings.ReplaceAll(s, "+", " ")) }
