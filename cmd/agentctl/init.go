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
		Short: "Create a project repository from an example",
		Long: `Create a project repository: write the files of an example into a folder, which is created
if it does not exist. The command never overwrites existing files.

It also writes the JSON Schemas of the files into .schemas, and into each file the line with
which an editor finds its schema.

Templates:
` + templates(),
		Example: "  agentctl init my-agents\n  cd my-agents && agentctl lint && agentctl test\n  git init && git add . && git commit -m 'First agents'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return createProject(args[0], example, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&example, "template", "hello", "example to copy")
	_ = cmd.RegisterFlagCompletionFunc("template", func(*cobra.Command, []string, string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, name := range examples.Names() {
			out = append(out, cobra.CompletionWithDesc(name, examples.About(name)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}) // The flag exists.
	return cmd
}

// templates lists the examples, one per line.
func templates() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, name := range examples.Names() {
		fmt.Fprintf(table, "  %s\t%s\n", name, examples.About(name))
	}
	_ = table.Flush() // Writing to memory cannot fail.
	return strings.TrimRight(out.String(), "\n")
}

// sources is the base of links from an example's README to files outside of the example.
const sources = "https://github.com/agentplatform/agentplatform/blob/main/"

// readExample returns the files of an example and the schemas of their kinds. Their links work in any repository.
func readExample(source fs.FS) (map[string][]byte, error) {
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

// createProject writes the files of an example into a folder: all of them, or none.
func createProject(folder, example string, out, messages io.Writer) error {
	source, err := examples.Open(example)
	if err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	files, err := readExample(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a working copy has the permissions that git gives it
		return fmt.Errorf("creating the folder: %w", err)
	}
	root, err := os.OpenRoot(folder) // No symbolic link leads out of it.
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	names := slices.Sorted(maps.Keys(files))
	if err := checkFree(root, names); err != nil {
		return fmt.Errorf("%s %w; nothing was written", folder, err)
	}
	for _, name := range names {
		if err := writeFile(root, name, files[name]); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(folder, filepath.FromSlash(name)))
	}
	fmt.Fprintf(messages, "created from the example %s; %s describes it\n", example, filepath.Join(folder, "README.md"))
	return nil
}

// checkFree returns an error if files cannot be written into a folder: some exist, or a parent is not a folder in it.
func checkFree(root *os.Root, names []string) error {
	var there []string
	for _, name := range names {
		path := filepath.FromSlash(name)
		for parent := filepath.Dir(path); parent != "."; parent = filepath.Dir(parent) {
			info, err := root.Stat(parent)
			if _, missing := root.Lstat(parent); errors.Is(err, fs.ErrNotExist) && errors.Is(missing, fs.ErrNotExist) {
				continue
			}
			if err != nil || !info.IsDir() {
				return fmt.Errorf("has %s, which is not a folder in it", parent)
			}
		}
		if _, err := root.Lstat(path); err == nil {
			there = append(there, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot hold %s: %w", name, err)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("already has %s", strings.Join(there, ", "))
	}
	return nil
}

func writeFile(root *os.Root, name string, text []byte) error {
	err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o755)
	if err == nil {
		err = root.WriteFile(filepath.FromSlash(name), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
