// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/store/sqlite"
)

// standardStream is the value of --to and --from for standard output and input.
const standardStream = "-"

// backupOptions are the flags of `store backup` and `store restore`.
type backupOptions struct {
	sqlite, file string
	replace      bool
	now          func() time.Time

	in            io.Reader
	out, messages io.Writer
}

// newCommand binds the flags that both commands have.
func (o *backupOptions) newCommand(cmd *cobra.Command, flag, usage string, do func(ctx context.Context) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.sqlite == "":
			return errors.New("--sqlite: must be the file of the store; back up PostgreSQL with its own tools")
		case o.file == "":
			return fmt.Errorf("--%s: must be a file, or - for a standard stream", flag)
		}
		o.in, o.out, o.messages = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return do(cmd.Context())
	}
	cmd.Flags().StringVar(&o.sqlite, "sqlite", "", "file of the embedded SQLite store")
	cmd.Flags().StringVar(&o.file, flag, "", usage)
	return cmd
}

func newStoreBackupCommand() *cobra.Command {
	o := &backupOptions{}
	return o.newCommand(&cobra.Command{
		Use:   "backup",
		Short: "Copy the embedded store while it is in use",
		Long: `Copy the embedded SQLite store while it is in use.

The copy is consistent, and has all data from before the command began. Writers do not wait
for it. Until the copy is complete, new data stays in the log beside the store. --to=- writes
the copy to standard output, so that it needs no space on the volume of the store:

  kubectl -n agentplatform-system exec agentplatform-0 -- \
    agentctl store backup --sqlite=/data/agentplatform.db --to=- > agentplatform.db

Copies of the file by other tools lack the data in the log, or are inconsistent.`,
	}, "to", "file of the copy, which must not exist; - is standard output", o.copyStore)
}

func (o *backupOptions) copyStore(ctx context.Context) error {
	reported := int64(-1)
	write := func(out io.Writer) error {
		return sqlite.Backup(ctx, o.sqlite, out, func(done, all int64) {
			if tenth := 10 * done / all; tenth > reported {
				reported = tenth
				fmt.Fprintf(o.messages, "%d%% of %s\n", 10*tenth, formatBytes(int(all)))
			}
		})
	}
	if o.file != standardStream {
		return sqlite.CopyTo(o.file, write)
	}
	if isTerminal(o.out) {
		return errors.New("--to: standard output is a terminal; redirect it to a file")
	}
	return write(o.out)
}

func newStoreRestoreCommand() *cobra.Command {
	o := &backupOptions{now: time.Now}
	cmd := o.newCommand(&cobra.Command{
		Use:   "restore",
		Short: "Restore the embedded store from a copy",
		Long: `Restore the embedded SQLite store from a copy that ` + "`agentctl store backup`" + ` made.

The command checks the copy first. It never replaces a store that a process has open, so
stop the platform before. With --replace it keeps an existing store under another name.`,
		Example: `  agentctl store restore --sqlite=/data/agentplatform.db --from=- < agentplatform.db`,
	}, "from", "file of the copy; - is standard input", o.restore)
	cmd.Flags().BoolVar(&o.replace, "replace", false, "keep an existing store under another name, instead of failing")
	return cmd
}

func (o *backupOptions) restore(ctx context.Context) error {
	in := o.in
	if o.file != standardStream {
		file, err := os.Open(o.file)
		if err != nil {
			return fmt.Errorf("opening the copy: %w", err)
		}
		defer file.Close()
		in = file
	}
	kept, err := sqlite.Restore(ctx, o.sqlite, in, o.replace, o.now())
	if kept != "" {
		fmt.Fprintf(o.messages, "the previous store is kept as %s; delete it when you no longer need it\n", kept)
	}
	if err != nil {
		return fmt.Errorf("restoring the store: %w", err)
	}
	fmt.Fprintf(o.messages, "restored %s; start the platform\n", o.sqlite)
	return nil
}
