// Command external-dns runs external-dns with its own sources, registry, plan and flags, and of its providers RFC 2136
// alone: its main program takes the libraries of all clouds along.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sigs.k8s.io/external-dns/endpoint"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns/validation"
	"sigs.k8s.io/external-dns/plan"
	"sigs.k8s.io/external-dns/provider"
	"sigs.k8s.io/external-dns/provider/rfc2136"
	"sigs.k8s.io/external-dns/registry"
	"sigs.k8s.io/external-dns/registry/txt"
	"sigs.k8s.io/external-dns/source"
	"sigs.k8s.io/external-dns/source/annotations"
	"sigs.k8s.io/external-dns/source/wrappers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	cfg := externaldns.NewConfig()
	if err := cfg.ParseFlags(os.Args[1:]); err != nil {
		return err
	}
	if err := validation.ValidateConfig(cfg); err != nil {
		return err
	}
	annotations.SetAnnotationPrefix(cfg.AnnotationPrefix)
	sourceConfig, err := source.NewSourceConfig(cfg)
	if err != nil {
		return err
	}
	endpoints, err := wrappers.Build(ctx, sourceConfig)
	if err != nil {
		return err
	}
	filter := endpoint.NewDomainFilterWithOptions(endpoint.WithDomainFilter(cfg.DomainFilter))
	server, err := rfc2136.New(ctx, cfg, filter)
	if err != nil {
		return err
	}
	records, err := txt.New(cfg, server)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := once(ctx, cfg, endpoints, records, filter); err != nil && !errors.Is(err, provider.SoftError) {
			return err
		} else if err != nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(cfg.Interval):
		}
	}
	return nil
}

// once does what the controller of external-dns does in one turn.
func once(
	ctx context.Context, cfg *externaldns.Config, from source.Source, to registry.Registry, filter *endpoint.DomainFilter,
) error {
	current, err := to.Records(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, provider.RecordsContextKey, current)
	wanted, err := from.Endpoints(ctx)
	if err != nil {
		return err
	}
	if wanted, err = to.AdjustEndpoints(wanted); err != nil {
		return err
	}
	planned := (&plan.Plan{
		Policies:       []plan.Policy{plan.Policies[cfg.Policy]},
		Current:        current,
		Desired:        wanted,
		DomainFilter:   endpoint.MatchAllDomainFilters{filter, to.GetDomainFilter()},
		ManagedRecords: cfg.ManagedDNSRecordTypes,
		ExcludeRecords: cfg.ExcludeDNSRecordTypes,
		OwnerID:        to.OwnerID(),
	}).Calculate()
	if !planned.Changes.HasChanges() {
		return nil
	}
	return to.ApplyChanges(ctx, planned.Changes)
}
