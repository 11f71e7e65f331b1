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

// schemaFolder is where `init` writes schemas. A build does not read it.
const schemaFolder = ".schemas"

func newSchemaCommand() *cobra.Command {
	var folder string
	kinds := make([]cobra.Completion, len(bundle.Kinds))
	for i, k := range bundle.Kinds {
		kinds[i] = cobra.CompletionWithDesc(string(k.Kind), k.Files)
	}
	cmd := &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Write the JSON Schemas by which editors complete and check a repository's files",
		Long: `Write the JSON Schema of a kind of file, or with --out those of all kinds into a folder, for
editors to complete and check by. A file says where its own is in its first line:

  # yaml-language-server: $schema=../.schemas/agent.json

Without a kind and without --out it lists the kinds.`,
		Example: `  agentctl schema agent
  agentctl schema --out .schemas`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case folder != "" && len(args) > 0:
				return errors.New("--out: writes all kinds; leave the kind out")
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
	cmd.Flags().StringVar(&folder, "out", "", "folder that is written to, and made where it is not there")
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

// schemaFiles are the schemas of all kinds, as files of a repository.
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

// writeSchemas writes the schemas of all kinds into a folder, over those of another release.
func writeSchemas(folder string, out io.Writer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a working copy, as git makes it
		return fmt.Errorf("making the folder: %w", err)
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
		if err := write(root, name, text); err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Join(folder, name))
	}
	return nil
}

// modeline is the first line of a file by which editors find its schema; "" where it has none.
func modeline(file string) string {
	kind := bundle.KindOf(file)
	if kind == "" {
		return ""
	}
	up := strings.Repeat("../", strings.Count(file, "/"))
	return fmt.Sprintf("# yaml-language-server: $schema=%s%s/%s.json\n", up, schemaFolder, kind)
}
