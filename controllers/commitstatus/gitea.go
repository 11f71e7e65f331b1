// SPDX-License-Identifier: Apache-2.0

package commitstatus

// giteaStatus is the body of Gitea's and Forgejo's "create a commit status".
type giteaStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
}

var giteaStates = map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"}

// giteaCall is the same for Forgejo, which began as Gitea.
func (r Repository) giteaCall(s Status, token string) call {
	return call{
		url:           r.api + "/repos/" + r.ownerAndName() + "/statuses/" + s.Commit,
		authorization: "token " + token,
		body:          giteaStatus{State: giteaStates[s.State], Context: s.Context, Description: s.Description},
	}
}
