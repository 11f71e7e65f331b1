// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/examples"
)

func newInitCommand() *cobra.Command {
	example := ""
	cmd := &cobra.Command{
		Use:   "init FOLDER",
		Short: "Begin a project repository from an example",
		Long: `Begin a project repository: writes the files of an example into a folder, which is made
where it is not there. Files that are there already are never written over.

Examples: ` + strings.Join(examples.Names(), ", ") + `.`,
		Example: "  agentctl init my-agents\n  cd my-agents && git init && git add . && git commit -m 'First agents'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return begin(args[0], example, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&example, "example", "hello", "the example to begin with")
	return cmd
}

// begin writes the files of an example into a folder: all of them, or none.
func begin(folder, example string, out, messages io.Writer) error {
	source, err := examples.Open(example)
	if err != nil {
		return fmt.Errorf("--example: %w", err)
	}
	var names, there []string
	err = fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		names = append(names, name)
		if _, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the example: %w", err)
	}
	if len(there) > 0 {
		return fmt.Errorf("%s has %s already; nothing was written", folder, strings.Join(there, ", "))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a working copy, as git makes it
		return fmt.Errorf("making the folder: %w", err)
	}
	root, err := os.OpenRoot(folder) // a link in it leads nowhere else
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	for _, name := range slices.Sorted(slices.Values(names)) {
		if err := write(root, source, name); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(folder, filepath.FromSlash(name)))
	}
	fmt.Fprintf(messages, "begun from the example %s; %s says what it does\n", example, filepath.Join(folder, "README.md"))
	return nil
}

func write(root *os.Root, source fs.FS, name string) error {
	text, err := fs.ReadFile(source, name)
	if err == nil {
		err = root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o755)
	}
	if err == nil {
		err = root.WriteFile(filepath.FromSlash(name), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
