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

// standardStream is how --to and --from name standard output and input.
const standardStream = "-"

// backupOptions are the flags of `store backup` and `store restore`.
type backupOptions struct {
	sqlite, file string
	replace      bool
	now          func() time.Time

	in            io.Reader
	out, messages io.Writer
}

// command binds the flags that both commands have.
func (o *backupOptions) command(cmd *cobra.Command, flag, usage string, do func(ctx context.Context) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.sqlite == "":
			return errors.New("--sqlite: must be the file of the store; PostgreSQL is backed up by its own tools")
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
	return o.command(&cobra.Command{
		Use:   "backup",
		Short: "Copy the embedded store while it is in use",
		Long: `Copy the embedded SQLite store while it is in use.

The copy is the store as of one moment, with everything that was accepted before the
command began. Nothing waits for it. Until it ends, the log beside the store grows by what
is written meanwhile. With --to=- the copy goes to standard output and takes no room on
the volume of the store:

  kubectl -n agentplatform-system exec agentplatform-0 -- \
    agentctl store backup --sqlite=/data/agentplatform.db --to=- > agentplatform.db

Copies of the file by other tools lack what is in the log, or are torn.`,
	}, "to", "file of the copy, which must not exist yet; - is standard output", o.backup)
}

func (o *backupOptions) backup(ctx context.Context) error {
	said := int64(-1)
	write := func(out io.Writer) error {
		return sqlite.Backup(ctx, o.sqlite, out, func(done, all int64) {
			if tenth := 10 * done / all; tenth > said {
				said = tenth
				fmt.Fprintf(o.messages, "%d%% of %s\n", 10*tenth, megabytes(int(all)))
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
	cmd := o.command(&cobra.Command{
		Use:   "restore",
		Short: "Put a copy of the embedded store in its place",
		Long: `Put a copy that ` + "`agentctl store backup`" + ` made where the embedded SQLite store is to be.

The copy is checked first. A store that a process has open is never replaced, so stop the
platform before. With --replace a store that is there is kept under another name.`,
		Example: `  agentctl store restore --sqlite=/data/agentplatform.db --from=- < agentplatform.db`,
	}, "from", "file of the copy; - is standard input", o.restore)
	cmd.Flags().BoolVar(&o.replace, "replace", false, "keep a store that is there under another name, in place of refusing")
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
		fmt.Fprintf(o.messages, "the store that was there is %s; delete it once it is not needed\n", kept)
	}
	if err != nil {
		return fmt.Errorf("restoring the store: %w", err)
	}
	fmt.Fprintf(o.messages, "restored %s; start the platform\n", o.sqlite)
	return nil
}
