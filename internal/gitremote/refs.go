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

// Branch finds the commit of a branch, or of the default branch: what is followed. A tag of
// that name is not: other people may push it than those who may push the branch.
func Branch(refs *packp.AdvRefs, name string) (plumbing.Hash, string, error) {
	if name == "" {
		if target := defaultBranch(refs); target != "" {
			return refs.References["refs/heads/"+target], target, nil
		}
		if refs.Head != nil {
			return *refs.Head, "", nil
		}
		return plumbing.ZeroHash, "", Remedy("the repository has no default branch; name a branch")
	}
	if hash, ok := refs.References["refs/heads/"+name]; ok {
		return hash, name, nil
	}
	return plumbing.ZeroHash, name, Remedy("the repository has no branch %q; push it or correct the name", name)
}

// Resolve finds the commit of a branch or tag, or of the default branch.
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

// defaultBranch is where HEAD points to; "" when the server does not say.
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

// Advertised says whether a branch or a tag stands at a commit.
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

// Request asks for commits and all that belongs to them.
func Request(refs *packp.AdvRefs, wants ...plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = wants
	return req
}

// Demultiplexed is the pack in what a server answers to a request.
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
