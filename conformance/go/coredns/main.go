// Command coredns runs CoreDNS with the plugins that a member of a cluster set needs: its releases lack multicluster.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/multicluster"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes", "multicluster"}
	coremain.Run()
}
