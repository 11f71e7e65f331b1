// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// clusterOptions say which cluster a command is about; without a kubeconfig in
// a pod, the pod's own.
type clusterOptions struct{ kubeconfig, context, namespace string }

func (o *clusterOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig file")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig file")
}

// cluster is the cluster of the kubeconfig; it is asked only where needed, so
// that a manifest can be made without one.
type cluster struct {
	options clusterOptions
	made    client.Client
}

func (c *cluster) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.options.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.options.context})
}

func (c *cluster) namespace() (string, error) {
	if c.options.namespace != "" {
		return c.options.namespace, nil
	}
	namespace, _, err := c.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace from the kubeconfig (or say -n): %w", err)
	}
	return namespace, nil
}

func (c *cluster) client() (client.Client, error) {
	if c.made != nil {
		return c.made, nil
	}
	config, err := c.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	if c.made, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	return c.made, nil
}
