//go:build tools

// Package tools pins the version of Envoy Gateway that the benchmarks are compared with.
package tools

import (
	_ "github.com/envoyproxy/gateway/cmd/envoy-gateway"
)
