// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

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

Beside them it writes the JSON Schemas of the files into .schemas, and into each file the line
by which an editor finds its own.

Templates:
` + templates(),
		Example: "  agentctl init my-agents\n  cd my-agents && agentctl lint && agentctl test\n  git init && git add . && git commit -m 'First agents'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return begin(args[0], example, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&example, "template", "hello", "the example to begin with")
	_ = cmd.RegisterFlagCompletionFunc("template", func(*cobra.Command, []string, string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, name := range examples.Names() {
			out = append(out, cobra.CompletionWithDesc(name, examples.About(name)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}) // fails of a flag that is not there
	return cmd
}

// templates are the examples, a line for each.
func templates() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, name := range examples.Names() {
		fmt.Fprintf(table, "  %s\t%s\n", name, examples.About(name))
	}
	_ = table.Flush() // into memory
	return strings.TrimRight(out.String(), "\n")
}

// sources is where what an example's README links to is outside of this repository.
const sources = "https://github.com/agentplatform/agentplatform/blob/main/"

// contents are the files of an example with the schemas of their kinds, whose links hold in
// any repository.
func contents(source fs.FS) (map[string][]byte, error) {
	files, err := schemaFiles()
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(source, name)
		if name == "README.md" {
			text = bytes.ReplaceAll(text, []byte("](../../"), []byte("]("+sources))
		}
		files[name] = append([]byte(modeline(name)), text...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the example: %w", err)
	}
	return files, nil
}

// begin writes the files of an example into a folder: all of them, or none.
func begin(folder, example string, out, messages io.Writer) error {
	source, err := examples.Open(example)
	if err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	files, err := contents(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a working copy, as git makes it
		return fmt.Errorf("making the folder: %w", err)
	}
	root, err := os.OpenRoot(folder) // a link in it leads nowhere else
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	names := slices.Sorted(maps.Keys(files))
	if err := room(root, names); err != nil {
		return fmt.Errorf("%s %w; nothing was written", folder, err)
	}
	for _, name := range names {
		if err := write(root, name, files[name]); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(folder, filepath.FromSlash(name)))
	}
	fmt.Fprintf(messages, "begun from the example %s; %s says what it does\n", example, filepath.Join(folder, "README.md"))
	return nil
}

// room says why files cannot be written into a folder: some are there already, or what
// leads to them is no folder in it.
func room(root *os.Root, names []string) error {
	var there []string
	for _, name := range names {
		path := filepath.FromSlash(name)
		for parent := filepath.Dir(path); parent != "."; parent = filepath.Dir(parent) {
			info, err := root.Stat(parent)
			if _, missing := root.Lstat(parent); errors.Is(err, fs.ErrNotExist) && errors.Is(missing, fs.ErrNotExist) {
				continue
			}
			if err != nil || !info.IsDir() {
				return fmt.Errorf("has %s, which is no folder in it", parent)
			}
		}
		if _, err := root.Lstat(path); err == nil {
			there = append(there, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("has no room for %s: %w", name, err)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("has %s already", strings.Join(there, ", "))
	}
	return nil
}

func write(root *os.Root, name string, text []byte) error {
	err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o755)
	if err == nil {
		err = root.WriteFile(filepath.FromSlash(name), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
