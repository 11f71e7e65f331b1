// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/image"
)

// newWriteImageCommand packs static binaries into an image archive, for
// machines that have Go but no container engine.
func newWriteImageCommand() *cobra.Command {
	var out string
	var spec image.Spec
	cmd := &cobra.Command{
		Use:   "write-image <source>=<path in image>...",
		Short: "Write an image archive of static binaries and data, without a container engine",
		Long: `Write an image archive of static binaries and data, without a container engine.

Files that may be executed keep that right; all others are readable by all.`,
		Example: `  devcluster write-image --name agentplatform:dev --out image.tar --entrypoint /agentplatform bin/agentplatform=/agentplatform`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				file, err := imageFile(arg)
				if err != nil {
					return err
				}
				spec.Files = append(spec.Files, file)
			}
			return writeImage(out, spec)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "image.tar", "the archive to write")
	flags.StringVar(&spec.Name, "name", "", "the image's reference, such as agentplatform:dev")
	flags.StringSliceVar(&spec.Entrypoint, "entrypoint", nil, "the command that a container runs")
	flags.StringVar(&spec.User, "user", "65532:65532", "the uid:gid it runs as")
	flags.StringSliceVar(&spec.Env, "env", nil, "NAME=value pairs of its environment")
	cobra.CheckErr(cmd.MarkFlagRequired("name"))
	return cmd
}

func imageFile(arg string) (image.File, error) {
	source, path, ok := strings.Cut(arg, "=")
	if !ok || !strings.HasPrefix(path, "/") {
		return image.File{}, fmt.Errorf("%q is not of the form source=/path/in/image", arg)
	}
	info, err := os.Stat(source)
	if err != nil {
		return image.File{}, fmt.Errorf("finding a file of the image: %w", err)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return image.File{}, fmt.Errorf("reading a file of the image: %w", err)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return image.File{Path: strings.TrimPrefix(path, "/"), Mode: mode, Content: content}, nil
}

func writeImage(path string, spec image.Spec) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the image archive: %w", err)
	}
	if err := image.Write(out, spec); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
