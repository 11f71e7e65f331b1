// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
)

const (
	// serviceAccountPrefix begins the user name of a service account.
	serviceAccountPrefix = "system:serviceaccount:"
	// masters is the group of cluster administrators. It does not count for keys.
	masters = "system:masters"
)

// createOptions are the flags of `apikey create`.
type createOptions struct {
	clusterOptions

	displayName, ownerUser, ownerServiceAccount, expires, dryRun, output string
	permissions, environments, ownerGroups                               []string
	narrowPermissions, narrowEnvironments, quiet                         bool
	// ownerIsMaster is true if the owner is the user of the command, and has permissions by the group masters.
	ownerIsMaster bool
}

func newAPIKeyCreateCommand() *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key and its APIKey object, and print the key once",
		Long: `Create an API key and its APIKey object, and print the key once.

The object has only the hash of the key, so you can store it in Git: --dry-run=client
-o yaml prints the object, and the key on standard error, and changes nothing. It does not
look up environments, which need not exist yet; --environments then accepts only the names
of their objects.

A key never has more permissions than its owner. The owner is you, unless --owner-user or
--owner-service-account names another one.`,
		Example: `  agentctl apikey create ci -n shop --permissions environments.view,deployments.create
  agentctl apikey create ci -n shop --owner-service-account ci --expires 720h --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.narrowPermissions = cmd.Flags().Changed("permissions")
			o.narrowEnvironments = cmd.Flags().Changed("environments")
			return o.createKey(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bindFlags(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the project; default: the namespace of the context")
	flags.StringVar(&o.displayName, "display-name", "", "display name of the key")
	flags.StringSliceVar(&o.permissions, "permissions", nil, "permissions of the key, such as environments.view; default: all permissions of its owner; '' is none")
	flags.StringSliceVar(&o.environments, "environments", nil,
		"environments of the key, by name, slug or ID, with --dry-run=client by the name of the object only; default: all; '' is none")
	flags.StringVar(&o.ownerUser, "owner-user", "", "user as whom the key acts; default: you")
	flags.StringSliceVar(&o.ownerGroups, "owner-group", nil, "group of --owner-user; can be repeated")
	flags.StringVar(&o.ownerServiceAccount, "owner-service-account", "", "service account of the namespace as which the key acts")
	flags.StringVar(&o.expires, "expires", "", "when the key expires: a duration such as 720h, or a time such as 2030-01-31T00:00:00Z; default: never")
	flags.StringVar(&o.dryRun, "dry-run", "none", "with client, change nothing and look up no environments; the other value is none")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the key")
	flags.StringVarP(&o.output, "output", "o", "", "with yaml, print the object too")
	cmd.MarkFlagsMutuallyExclusive("owner-user", "owner-service-account")
	return cmd
}

func (o *createOptions) createKey(ctx context.Context, name string, out, messages io.Writer) error {
	if o.dryRun != "none" && o.dryRun != "client" {
		return fmt.Errorf("--dry-run=%s: must be none or client", o.dryRun)
	}
	if o.output != "" && o.output != "yaml" {
		return fmt.Errorf("-o %s: must be yaml", o.output)
	}
	cluster := &cluster{options: o.clusterOptions}
	object, key, err := o.newAPIKey(ctx, cluster, name)
	if err != nil {
		return err
	}
	if o.dryRun == "none" {
		c, err := cluster.newClient()
		if err != nil {
			return err
		}
		// This is no apply, because a new key must not replace another one with the same name.
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating APIKey %s/%s: %w", object.Namespace, name, err)
		}
	}
	if o.ownerIsMaster {
		if _, err := fmt.Fprintln(messages, mastersNote(object)); err != nil {
			return fmt.Errorf("printing a note: %w", err)
		}
	}
	if o.dryRun == "client" && len(object.Spec.Environments) > 0 && !o.quiet {
		if _, err := fmt.Fprintln(messages, dryRunNote(object)); err != nil {
			return fmt.Errorf("printing a note: %w", err)
		}
	}
	if o.output == "yaml" || o.dryRun == "client" {
		if err := printObject(out, object); err != nil {
			return err
		}
		out = messages // Only the manifest goes to standard output.
	}
	if !o.quiet {
		if _, err := fmt.Fprintln(messages, "The key is shown only once, and is not stored:"); err != nil {
			return fmt.Errorf("printing the key: %w", err)
		}
	}
	if _, err := fmt.Fprintln(out, key); err != nil {
		return fmt.Errorf("printing the key: %w", err)
	}
	return nil
}

// newAPIKey returns a new key and its object.
func (o *createOptions) newAPIKey(ctx context.Context, cluster *cluster, name string) (*v1alpha1.APIKey, keys.Key, error) {
	namespace, err := cluster.namespace()
	if err != nil {
		return nil, keys.Key{}, err
	}
	owner, err := o.findOwner(ctx, cluster, namespace)
	if err != nil {
		return nil, keys.Key{}, err
	}
	expires, err := parseExpiry(o.expires, time.Now())
	if err != nil {
		return nil, keys.Key{}, err
	}
	key := keys.Generate()
	object := &v1alpha1.APIKey{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIKey"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.APIKeySpec{
			DisplayName: v1alpha1.DisplayName(o.displayName), Hash: key.Hash(), KeyID: key.ID(), Owner: owner,
			Access: v1alpha1.AccessAll, EnvironmentAccess: v1alpha1.AccessAll, ExpiresAt: expires,
		},
	}
	if o.narrowPermissions {
		object.Spec.Access = v1alpha1.AccessSelected
		for _, p := range o.permissions {
			object.Spec.Permissions = append(object.Spec.Permissions, v1alpha1.Permission(p))
		}
	}
	if o.narrowEnvironments {
		object.Spec.EnvironmentAccess = v1alpha1.AccessSelected
		if o.dryRun == "client" {
			object.Spec.Environments, err = o.checkEnvironmentNames()
		} else {
			object.Spec.Environments, err = o.findEnvironments(ctx, cluster, namespace)
		}
		if err != nil {
			return nil, keys.Key{}, err
		}
	}
	return object, key, nil
}

// findEnvironments returns the environments that the flag names, by the names of their objects, as APIKeys have them.
func (o *createOptions) findEnvironments(ctx context.Context, cluster *cluster, namespace string) (names []v1alpha1.EnvironmentName, err error) {
	if len(o.environments) == 0 {
		return nil, nil
	}
	c, err := cluster.newClient()
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.EnvironmentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the environments that --environments names: %w", err)
	}
	for _, wanted := range o.environments {
		name, err := findEnvironmentObject(wanted, list.Items)
		if err != nil {
			return nil, err
		}
		names = append(names, v1alpha1.EnvironmentName(name))
	}
	return names, nil
}

// checkEnvironmentNames returns the environments of the flag for a dry run. It does not look them up, because they need not exist
// yet. It rejects IDs, and display names that are not valid names of objects. A slug is a valid name.
func (o *createOptions) checkEnvironmentNames() (names []v1alpha1.EnvironmentName, err error) {
	for _, wanted := range o.environments {
		problem := ""
		if uuid.Validate(wanted) == nil {
			problem = "is an ID, which --dry-run=client does not look up"
		} else if len(validation.IsDNS1123Label(wanted)) > 0 {
			problem = "is not a name of an Environment object"
		}
		if problem != "" {
			return nil, fmt.Errorf("--environments: %q %s; use its metadata.name, or leave out --dry-run", printable(wanted), problem)
		}
		names = append(names, v1alpha1.EnvironmentName(wanted))
	}
	return names, nil
}

// dryRunNote warns that the environments of a manifest may not exist.
func dryRunNote(key *v1alpha1.APIKey) string {
	return fmt.Sprintf("Note: --environments were not looked up: each must be the metadata.name of an Environment in namespace %s.", key.Namespace)
}

// findEnvironmentObject returns the name of the object of an environment that has a name, ID, slug or display name.
func findEnvironmentObject(wanted string, all []v1alpha1.Environment) (string, error) {
	matchers := []func(*v1alpha1.Environment) bool{
		func(e *v1alpha1.Environment) bool { return e.Name == wanted },
		func(e *v1alpha1.Environment) bool { return strings.EqualFold(e.Status.ID, wanted) },
		func(e *v1alpha1.Environment) bool { return e.Status.Slug == wanted },
		func(e *v1alpha1.Environment) bool { return e.Title() == wanted },
	}
	for _, matches := range matchers {
		if wanted == "" {
			break
		}
		var found []string
		for i := range all {
			if matches(&all[i]) {
				found = append(found, all[i].Name)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("--environments: %q is ambiguous; use a name: %s", printable(wanted), strings.Join(found, ", "))
		}
	}
	known := make([]candidate, len(all))
	for i := range all {
		known[i] = candidate{name: all[i].Name}
	}
	return "", fmt.Errorf("--environments: there is no environment %q; there are: %s",
		printable(wanted), describeAll(known, candidate.nameOrID))
}

// findOwner returns the owner that the flags name, or else the user of the command.
func (o *createOptions) findOwner(ctx context.Context, cluster *cluster, namespace string) (v1alpha1.KeyOwner, error) {
	switch {
	case o.ownerServiceAccount != "":
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: o.ownerServiceAccount}, nil
	case o.ownerUser != "":
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: o.ownerUser, Groups: o.ownerGroups}, nil
	case len(o.ownerGroups) > 0:
		return v1alpha1.KeyOwner{}, errors.New("--owner-group needs --owner-user")
	}
	c, err := cluster.newClient()
	if err != nil {
		return v1alpha1.KeyOwner{}, err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return v1alpha1.KeyOwner{}, fmt.Errorf("asking the cluster for your user name (or give --owner-user): %w", err)
	}
	who := review.Status.UserInfo
	o.ownerIsMaster = slices.Contains(who.Groups, masters)
	if account, ok := strings.CutPrefix(who.Username, serviceAccountPrefix+namespace+":"); ok {
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: account}, nil
	}
	return userOwner(who)
}

// mastersNote tells an administrator of a cluster which role the key needs.
func mastersNote(key *v1alpha1.APIKey) string {
	return fmt.Sprintf("Note: the group %s, which gives you all permissions, does not count for keys. If you have no other role, bind one:\n"+
		"  kubectl -n %s create rolebinding %s --clusterrole=agentplatform-admin --user=%q", masters, key.Namespace, key.Name, key.Spec.Owner.Name)
}

// userOwner returns a user as an owner, with the groups that count for a key.
func userOwner(who authenticationv1.UserInfo) (v1alpha1.KeyOwner, error) {
	owner := v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: who.Username}
	for _, group := range who.Groups {
		if !strings.HasPrefix(group, "system:") {
			owner.Groups = append(owner.Groups, group)
		}
	}
	if len(owner.Groups) > v1alpha1.MaxOwnerGroups {
		return v1alpha1.KeyOwner{}, fmt.Errorf("you are in %d groups, but a key can have only %d: give --owner-user, and the relevant groups with --owner-group",
			len(owner.Groups), v1alpha1.MaxOwnerGroups)
	}
	return owner, nil
}

// parseExpiry reads a duration from now or a time; nil for "".
func parseExpiry(text string, now time.Time) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		period, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("--expires %q: must be a duration such as 720h or a time such as 2030-01-31T00:00:00Z", text)
		}
		at = now.Add(period)
	}
	if !at.After(now) {
		return nil, fmt.Errorf("--expires %q: is in the past", text)
	}
	return &metav1.Time{Time: at.UTC().Truncate(time.Second)}, nil
}

// printObject prints the manifest, without the fields that a cluster adds.
func printObject(out io.Writer, object *v1alpha1.APIKey) error {
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIKey",
		"metadata": map[string]string{"namespace": object.Namespace, "name": object.Name}, "spec": object.Spec,
	})
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	if _, err := out.Write(manifest); err != nil {
		return fmt.Errorf("printing the manifest: %w", err)
	}
	return nil
}
