// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
)

// schemaFolder is the folder into which `init` writes schemas. A build does not read it.
const schemaFolder = ".schemas"

func newSchemaCommand() *cobra.Command {
	var folder string
	kinds := make([]cobra.Completion, len(bundle.Kinds))
	for i, k := range bundle.Kinds {
		kinds[i] = cobra.CompletionWithDesc(string(k.Kind), k.Files)
	}
	cmd := &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Write JSON Schemas with which editors complete and check a repository's files",
		Long: `Write the JSON Schema of a kind of file, or with --out the schemas of all kinds into a folder.
Editors complete and check files with them. The first line of a file names its schema:

  # yaml-language-server: $schema=../.schemas/agent.json

Without KIND and without --out the command lists the kinds.`,
		Example: `  agentctl schema agent
  agentctl schema --out .schemas`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case folder != "" && len(args) > 0:
				return errors.New("--out: writes all kinds; do not give KIND")
			case folder != "":
				return writeSchemas(folder, cmd.OutOrStdout())
			case len(args) > 0:
				text, err := bundle.Schema(bundle.Kind(args[0]))
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return listKinds(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&folder, "out", "", "folder to write to; it is created if it does not exist")
	return cmd
}

func listKinds(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tFILES")
	for _, k := range bundle.Kinds {
		fmt.Fprintf(table, "%s\t%s\n", k.Kind, k.Files)
	}
	return table.Flush()
}

// schemaFiles returns the schemas of all kinds, by their paths in a repository.
func schemaFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, k := range bundle.Kinds {
		text, err := bundle.Schema(k.Kind)
		if err != nil {
			return nil, err
		}
		files[path.Join(schemaFolder, string(k.Kind)+".json")] = text
	}
	return files, nil
}

// writeSchemas writes the schemas of all kinds into a folder. It replaces schemas of another release.
func writeSchemas(folder string, out io.Writer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a working copy has the permissions that git gives it
		return fmt.Errorf("creating the folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	for _, k := range bundle.Kinds {
		text, err := bundle.Schema(k.Kind)
		if err != nil {
			return err
		}
		name := string(k.Kind) + ".json"
		if err := writeFile(root, name, text); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(folder, name))
	}
	return nil
}

// modeline returns the first line of a file, with which editors find its schema; "" if the file has no schema.
func modeline(file string) string {
	kind := bundle.KindOf(file)
	if kind == "" {
		return ""
	}
	up := strings.Repeat("../", strings.Count(file, "/"))
	return fmt.Sprintf("# yaml-language-server: $schema=%s%s/%s.json\n", up, schemaFolder, kind)
}
