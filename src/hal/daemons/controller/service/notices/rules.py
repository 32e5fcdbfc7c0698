"""Whether the site sends a message to a target.

Pure.
"""

from __future__ import annotations

from hal.core.model import JobSpec, SpecError, shown
from hal.core.model.notification import Kind, Notification, check_url
from hal.daemons.controller.config_sections import NotificationsSection
from hal.runtime.webhook import is_allowed


def check_notify(spec: JobSpec, site: NotificationsSection) -> None:
    """Check the notifications of a job that is to be submitted.

    Raises:
        SpecError: the site does not send one; says what an operator would have to set.
    """
    for one in spec.notify:
        if one.kind is Kind.WEBHOOK:
            _check_webhook(one, site)
        else:
            _check_address(one, site)


def _check_webhook(one: Notification, site: NotificationsSection) -> None:
    _, host, _, _ = check_url(one.to)
    if not is_allowed(host, site.webhook_hosts):
        what = f"webhooks to '{shown(host)}' are not allowed" if site.webhook_hosts else "this HAL sends to no webhooks"
        raise SpecError(f"notify: {what}", hint="an operator allows hosts: webhook_hosts under [notifications]")


def _check_address(one: Notification, site: NotificationsSection) -> None:
    if not site.smtp:
        raise SpecError(
            "notify: this HAL sends no mail", hint="an operator names a mail server: smtp under [notifications]"
        )
    _, at, domain = one.to.rpartition("@")
    if not at and not site.mail_domain:
        raise SpecError(f"notify: '{shown(one.to)}' is no mail address", hint="write one, like ann@example.org")
    if at and site.mail_domains and domain.lower() not in site.mail_domains:
        raise SpecError(
            f"notify: mail to '{shown(domain)}' is not allowed", hint=f"domains: {', '.join(site.mail_domains)}"
        )


def address_of(target: str, site: NotificationsSection) -> str:
    """The mail address of a target: users have the site's domain."""
    return target if "@" in target else f"{target}@{site.mail_domain}"
