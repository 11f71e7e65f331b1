// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
)

// Branch returns the commit of a branch, or of the default branch. It ignores a tag with that name,
// because other users may be able to push it.
func Branch(refs *packp.AdvRefs, name string) (plumbing.Hash, string, error) {
	if name == "" {
		if target := defaultBranch(refs); target != "" {
			return refs.References["refs/heads/"+target], target, nil
		}
		if refs.Head != nil {
			return *refs.Head, "", nil
		}
		return plumbing.ZeroHash, "", Remedy("the repository has no default branch; set a branch")
	}
	if hash, ok := refs.References["refs/heads/"+name]; ok {
		return hash, name, nil
	}
	return plumbing.ZeroHash, name, Remedy("the repository has no branch %q; push it or correct the name", name)
}

// Resolve returns the commit of a branch or tag, or of the default branch.
func Resolve(refs *packp.AdvRefs, name string) (plumbing.Hash, string, error) {
	hash, branch, err := Branch(refs, name)
	if err == nil || name == "" {
		return hash, branch, err
	}
	if hash, ok := refs.Peeled["refs/tags/"+name]; ok {
		return hash, name, nil
	}
	if hash, ok := refs.References["refs/tags/"+name]; ok {
		return hash, name, nil
	}
	return plumbing.ZeroHash, name, Remedy("the repository has no branch or tag %q; push it or correct the name", name)
}

// defaultBranch returns the target of HEAD, or "" if the server does not send it.
func defaultBranch(refs *packp.AdvRefs) string {
	for _, value := range refs.Capabilities.Get(capability.SymRef) {
		from, to, _ := strings.Cut(value, ":")
		branch, ok := strings.CutPrefix(to, "refs/heads/")
		if _, known := refs.References[to]; from == "HEAD" && ok && known {
			return branch
		}
	}
	return ""
}

// Advertised reports whether a branch or a tag points to a commit.
func Advertised(refs *packp.AdvRefs, hash plumbing.Hash) bool {
	for _, tip := range refs.References {
		if tip == hash {
			return true
		}
	}
	for _, tip := range refs.Peeled {
		if tip == hash {
			return true
		}
	}
	return false
}

// Request requests commits and their objects.
func Request(refs *packp.AdvRefs, wants ...plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = wants
	return req
}

// Demultiplexed returns the pack in a server's response.
func Demultiplexed(req *packp.UploadPackRequest, r io.Reader) io.Reader {
	switch capabilities := req.Capabilities; {
	case capabilities.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case capabilities.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	default:
		return r
	}
}
