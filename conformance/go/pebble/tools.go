//go:build tools

// Package tools pins the versions of a certificate authority for tests, and of its DNS server.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
