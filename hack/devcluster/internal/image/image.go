// SPDX-License-Identifier: Apache-2.0

// Package image writes image archives of static binaries, without a container
// engine.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

type object = map[string]any

// Spec describes an image of one layer.
type Spec struct {
	// Name is the image's reference, such as agentplatform:dev.
	Name string
	// Files is the complete content of the image.
	Files []File
	// Entrypoint is the command that a container runs.
	Entrypoint []string
	// User is `uid:gid`.
	User string
	// Env are `NAME=value` pairs.
	Env []string
}

// File is one file of an image.
type File struct {
	// Path is absolute, without its leading slash.
	Path string
	// Mode are the permission bits.
	Mode    int64
	Content []byte
}

// Write writes an archive of the image to out in the format of `docker save`. The same image results in the same bytes.
func Write(out io.Writer, spec Spec) error {
	var layer bytes.Buffer
	if err := writeTar(&layer, spec.Files...); err != nil {
		return fmt.Errorf("writing a layer: %w", err)
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": object{"Entrypoint": spec.Entrypoint, "User": spec.User, "Env": spec.Env},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hexDigest(layer.Bytes())}},
	})
	if err != nil {
		return fmt.Errorf("encoding an image's configuration: %w", err)
	}
	configName, layerName := hexDigest(config)+".json", hexDigest(layer.Bytes())+".tar"
	manifest, err := json.Marshal([]object{{
		"Config": configName, "RepoTags": []string{spec.Name}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("encoding an image's manifest: %w", err)
	}
	err = writeTar(out,
		File{Path: configName, Mode: 0o644, Content: config},
		File{Path: layerName, Mode: 0o644, Content: layer.Bytes()},
		File{Path: "manifest.json", Mode: 0o644, Content: manifest})
	if err != nil {
		return fmt.Errorf("writing an image archive: %w", err)
	}
	return nil
}

func hexDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// writeTar leaves out times and owners, so that the same content gives the
// same bytes.
func writeTar(out io.Writer, files ...File) error {
	archive := tar.NewWriter(out)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(f.Content))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}
