// SPDX-License-Identifier: Apache-2.0

// Package open opens the store that a process's flags name.
package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Builds and the store have the same size limit for an expression. If the limits differ, the types differ and this line does
// not compile.
var _ *[expr.MaxSize]byte = (*[store.MaxConcurrencyExpression]byte)(nil)

// Options name a store; exactly one of the two is set.
type Options struct {
	// SQLite is the path of the embedded store's file.
	SQLite string
	// DSNFile is the file that holds the PostgreSQL connection string.
	DSNFile string
	// Connections is the maximum number of PostgreSQL connections of the process. 0 means postgres.DefaultConnections.
	Connections int32
}

// Bind adds the flags.
func (o *Options) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.SQLite, "sqlite", "", "file of the embedded SQLite store; set either this flag or --store-dsn-file")
	flags.StringVar(&o.DSNFile, "store-dsn-file", "", "file that holds the PostgreSQL connection string; set either this flag or --sqlite")
	flags.Int32Var(&o.Connections, "store-connections", postgres.DefaultConnections,
		fmt.Sprintf("maximum number of PostgreSQL connections of the process, %d to %d", postgres.MinConnections, postgres.MaxConnections))
}

// checkTimeout is how long opening a store waits for the check of its schema.
const checkTimeout = 5 * time.Second

// Store opens the store without migrating it. It rejects a store with the schema of other migrations, or of a newer release that
// excludes this one, because waiting does not change the schema. It opens a store that does not respond or is not migrated yet,
// because the store may become ready later.
func Store(ctx context.Context, o Options) (store.Store, error) {
	s, err := openEngine(ctx, o)
	if err != nil {
		return nil, err
	}
	check, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := s.Ping(check); isUnusable(err) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openEngine(ctx context.Context, o Options) (store.Store, error) {
	switch {
	case (o.SQLite == "") == (o.DSNFile == ""):
		return nil, errors.New("name one store: --sqlite FILE for one process, or --store-dsn-file FILE for PostgreSQL")
	case o.SQLite != "":
		return sqlite.Open(ctx, sqlite.Options{Path: o.SQLite, Logger: slog.Default(), Evaluate: expr.On})
	}
	if err := postgres.CheckConnections(o.Connections); err != nil {
		return nil, fmt.Errorf("reading --store-connections: %w", err)
	}
	read := func() (string, error) {
		dsn, err := os.ReadFile(o.DSNFile)
		if err != nil {
			return "", fmt.Errorf("reading --store-dsn-file: %w", err)
		}
		return strings.TrimSpace(string(dsn)), nil
	}
	dsn, err := read()
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{DSN: dsn, Reread: read, Connections: o.Connections, Logger: slog.Default(), Evaluate: expr.On})
}
